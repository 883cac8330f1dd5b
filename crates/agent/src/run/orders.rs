//! Orders of the control plane: those under way, their answers, and the last ones answered, in case one comes again.

use std::collections::VecDeque;

use api::agent::OrderDone;

/// How many orders of each kind are remembered. A control plane has one renewal of a node on order at a time, so the newest are
/// those that it waits for; whoever sends more than this must not fill the memory.
const REMEMBERED: usize = 16;

#[derive(Debug, Default)]
pub struct Orders {
    /// Renewals that were ordered and are not begun. A certificate that was asked for before an order does not fulfil it:
    /// the control plane waits for one that was issued after.
    renewals: Newest<String>,
    /// Those that the renewal under way fulfils.
    underway: Newest<String>,
    answers: Newest<OrderDone>,
    answered: Newest<OrderDone>,
}

/// The newest `REMEMBERED` of them, oldest first.
#[derive(Debug)]
struct Newest<T>(VecDeque<T>);

impl<T> Default for Newest<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Newest<T> {
    fn push(&mut self, one: T) {
        if self.0.len() >= REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(one);
    }
}

impl Orders {
    /// Whether it was answered before; then the same answer is sent again.
    pub fn is_answered(&mut self, order_id: &str) -> bool {
        let before = self.answered.0.iter().find(|done| done.order_id == order_id).cloned();
        let known = before.is_some();
        if let Some(done) = before {
            self.answers.push(done);
        }
        known
    }

    /// False if it is known already.
    pub fn renewal(&mut self, order_id: String) -> bool {
        let is_new = !self.renewals.0.contains(&order_id) && !self.underway.0.contains(&order_id);
        if is_new {
            self.renewals.push(order_id);
        }
        is_new
    }

    /// A new certificate is asked for.
    pub fn renewal_begins(&mut self) {
        for order_id in std::mem::take(&mut self.renewals).0 {
            self.underway.push(order_id);
        }
    }

    /// The new certificate is in use. Whether another was ordered meanwhile.
    pub fn renewal_done(&mut self) -> bool {
        self.answer(true, "");
        !self.renewals.0.is_empty()
    }

    /// There is no new certificate: every renewal that was ordered is answered so.
    pub fn renewal_failed(&mut self, detail: &str) {
        self.renewal_begins();
        self.answer(false, detail);
    }

    /// Answers those that are under way.
    fn answer(&mut self, ok: bool, detail: &str) {
        for order_id in std::mem::take(&mut self.underway).0 {
            let done = OrderDone { order_id, ok, detail: detail.to_owned() };
            self.answered.push(done.clone());
            self.answers.push(done);
        }
    }

    /// An order that ended by itself.
    pub fn ended(&mut self, order_id: String, result: Result<(), String>) {
        let ok = result.is_ok();
        let done = OrderDone { order_id, ok, detail: result.err().unwrap_or_default() };
        self.answered.push(done.clone());
        self.answers.push(done);
    }

    pub fn refuse(&mut self, order_id: String, detail: &str) {
        self.answers.push(OrderDone { order_id, ok: false, detail: detail.to_owned() });
    }

    /// The next answer to send; it stays until [`Orders::sent`].
    pub fn next_answer(&self) -> Option<OrderDone> {
        self.answers.0.back().cloned()
    }

    pub fn sent(&mut self) {
        self.answers.0.pop_back();
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

    #[test]
    fn of_orders_without_end_the_newest_are_answered() {
        let mut orders = Orders::default();
        for number in 0..1000 {
            assert!(orders.renewal(number.to_string()));
            if number % 100 == 0 {
                orders.renewal_begins();
            }
        }
        orders.renewal_begins();
        assert!(!orders.renewal("999".to_owned()), "it is under way");
        assert!(!orders.renewal_done());
        let newest: Vec<_> = (984..1000).rev().map(|number| (number.to_string(), true)).collect();
        assert_eq!(answers(&mut orders), newest);
        for number in 0..1000 {
            orders.refuse(number.to_string(), "not supported");
        }
        assert_eq!(answers(&mut orders).len(), REMEMBERED);
    }
}
