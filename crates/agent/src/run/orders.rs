//! Orders of the control plane: those under way, their answers, and the last ones answered, in case one comes again.

use std::collections::VecDeque;

use api::agent::OrderDone;

/// How many answered orders are remembered.
const ANSWERED: usize = 16;

#[derive(Debug, Default)]
pub struct Orders {
    /// Renewals that were ordered and are not begun. A certificate that was asked for before an order does not fulfil it:
    /// the control plane waits for one that was issued after.
    renewals: Vec<String>,
    /// Those that the renewal under way fulfils.
    underway: Vec<String>,
    answers: Vec<OrderDone>,
    answered: VecDeque<OrderDone>,
}

impl Orders {
    /// Whether it was answered before; then the same answer is sent again.
    pub fn is_answered(&mut self, order_id: &str) -> bool {
        let before = self.answered.iter().find(|done| done.order_id == order_id).cloned();
        let known = before.is_some();
        self.answers.extend(before);
        known
    }

    pub fn renewal(&mut self, order_id: String) {
        if !self.renewals.contains(&order_id) && !self.underway.contains(&order_id) {
            self.renewals.push(order_id);
        }
    }

    /// A new certificate is asked for.
    pub fn renewal_begins(&mut self) {
        self.underway.append(&mut self.renewals);
    }

    /// The new certificate is in use. Whether another was ordered meanwhile.
    pub fn renewal_done(&mut self) -> bool {
        let fulfilled = std::mem::take(&mut self.underway);
        self.answer(fulfilled, true, "");
        !self.renewals.is_empty()
    }

    /// There is no new certificate: every renewal that was ordered is answered so.
    pub fn renewal_failed(&mut self, detail: &str) {
        self.renewal_begins();
        let failed = std::mem::take(&mut self.underway);
        self.answer(failed, false, detail);
    }

    fn answer(&mut self, orders: Vec<String>, ok: bool, detail: &str) {
        for order_id in orders {
            let done = OrderDone { order_id, ok, detail: detail.to_owned() };
            self.answered.push_back(done.clone());
            self.answers.push(done);
        }
        while self.answered.len() > ANSWERED {
            self.answered.pop_front();
        }
    }

    pub fn refuse(&mut self, order_id: String, detail: &str) {
        self.answers.push(OrderDone { order_id, ok: false, detail: detail.to_owned() });
    }

    /// The next answer to send; it stays until [`Orders::sent`].
    pub fn next_answer(&self) -> Option<OrderDone> {
        self.answers.last().cloned()
    }

    pub fn sent(&mut self) {
        self.answers.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(orders: &mut Orders) -> Vec<(String, bool)> {
        let mut answers = Vec::new();
        while let Some(done) = orders.next_answer() {
            orders.sent();
            answers.push((done.order_id, done.ok));
        }
        answers
    }

    #[test]
    fn an_order_that_comes_while_a_renewal_is_under_way_wants_another() {
        let mut orders = Orders::default();
        orders.renewal("before".to_owned());
        orders.renewal_begins();
        orders.renewal("meanwhile".to_owned());
        orders.renewal("before".to_owned());
        assert!(orders.renewal_done(), "one is left");
        assert_eq!(answers(&mut orders), [("before".to_owned(), true)]);
        orders.renewal_begins();
        assert!(!orders.renewal_done());
        assert_eq!(answers(&mut orders), [("meanwhile".to_owned(), true)]);
    }

    #[test]
    fn a_renewal_that_fails_answers_every_order() {
        let mut orders = Orders::default();
        orders.renewal("before".to_owned());
        orders.renewal_begins();
        orders.renewal("meanwhile".to_owned());
        orders.renewal_failed("disk_full");
        let mut said = answers(&mut orders);
        said.sort();
        assert_eq!(said, [("before".to_owned(), false), ("meanwhile".to_owned(), false)]);
        assert!(orders.is_answered("meanwhile"), "asked again, it says the same");
    }
}
