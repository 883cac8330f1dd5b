//! Orders of the control plane: those under way, their answers, and the last ones answered, in case one comes again.

use std::collections::VecDeque;

use api::agent::OrderDone;

/// How many answered orders are remembered.
const ANSWERED: usize = 16;

#[derive(Debug, Default)]
pub struct Orders {
    renewals: Vec<String>,
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
        if !self.renewals.contains(&order_id) {
            self.renewals.push(order_id);
        }
    }

    /// Answers every renewal that was ordered.
    pub fn answer_renewals(&mut self, ok: bool, detail: &str) {
        for order_id in std::mem::take(&mut self.renewals) {
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
