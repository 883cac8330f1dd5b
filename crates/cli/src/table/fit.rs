//! Which columns of a table a terminal has room for, and how wide each is.

use super::{GAP, shortened, shortened_within};
use anstyle::Style;
use unicode_width::UnicodeWidthStr;

/// Less of a sentence says nothing.
const ELASTIC_LEAST: usize = 24;
/// Beside a column that is shortened, so that both stay.
const ELASTIC_LEAST_BESIDE: usize = 12;
/// Enough of both ends of an id to know it by.
const NARROW_LEAST: usize = 16;

pub struct ColumnPlan {
    /// Of every column; absent for those that are left out.
    widths: Vec<Option<usize>>,
    /// What is left out, as in the head.
    pub dropped: Vec<usize>,
    elastic: Option<usize>,
}

impl ColumnPlan {
    /// `natural` is what each column would take, nothing of one that is not wanted; `order` what may be left out, first things first.
    pub fn new(
        natural: Vec<Option<usize>>,
        order: &[usize],
        (elastic, narrow): (Option<usize>, Option<usize>),
        columns: Option<usize>,
    ) -> Self {
        let mut plan = Self { widths: natural.clone(), dropped: Vec::new(), elastic };
        let wanted = |column: &&usize| natural.get(**column).is_some_and(Option::is_some);
        let order: Vec<usize> = order.iter().filter(wanted).copied().collect();
        let whole = |column: usize| natural.get(column).copied().flatten().unwrap_or_default();
        let Some(columns) = columns.filter(|columns| plan.total() > *columns) else { return plan };
        // Prose is cut before anything is left out, and gets what remains at the end.
        let least = |column: usize| match Some(column) {
            prose if prose == elastic && narrow.is_some() => whole(column).min(ELASTIC_LEAST_BESIDE),
            prose if prose == elastic => whole(column).min(ELASTIC_LEAST),
            id if id == narrow => whole(column).min(NARROW_LEAST),
            _ => whole(column),
        };
        for column in [elastic, narrow].into_iter().flatten() {
            plan.set(column, Some(least(column)));
        }
        let elastic_last = order.iter().filter(|column| Some(**column) != elastic);
        let order: Vec<usize> =
            elastic_last.chain(order.iter().filter(|column| Some(**column) == elastic)).copied().collect();
        for column in &order {
            if plan.total() > columns {
                plan.set(*column, None);
            }
        }
        // A wide column that went may have made room for a narrow one that went before.
        for column in order.iter().rev() {
            let need = least(*column) + GAP;
            if plan.widths.get(*column) == Some(&None) && plan.total() + need <= columns {
                plan.set(*column, Some(least(*column)));
            }
        }
        plan.distribute(narrow.map(|column| (column, whole(column))), columns);
        plan.distribute(elastic.map(|column| (column, whole(column))), columns);
        let is_dropped = |column: &usize| whole(*column) > 0 && plan.widths.get(*column) == Some(&None);
        plan.dropped = (0..natural.len()).filter(is_dropped).collect();
        plan
    }

    /// What is left over belongs to the prose. If not even the indispensable fits, its widest part is cut.
    fn distribute(&mut self, elastic: Option<(usize, usize)>, columns: usize) {
        let spare = columns.saturating_sub(self.total());
        if let Some((column, whole)) = elastic
            && let Some(Some(width)) = self.widths.get(column).copied()
        {
            self.set(column, Some(width.saturating_add(spare).min(whole)));
        }
        while self.total() > columns {
            let Some(widest) = self.widths.iter_mut().flatten().max() else { return };
            if *widest <= 1 {
                return;
            }
            *widest -= 1;
        }
    }

    fn set(&mut self, column: usize, width: Option<usize>) {
        if let Some(place) = self.widths.get_mut(column) {
            *place = width;
        }
    }

    fn total(&self) -> usize {
        let shown = self.widths.iter().flatten();
        shown.clone().sum::<usize>() + GAP * shown.count().saturating_sub(1)
    }

    /// A line of cells. Paint covers the text of a cell, not the space beside it.
    pub fn line(&self, cells: &[String], style: impl Fn(usize) -> Style) -> String {
        let shown = self.widths.iter().zip(cells).enumerate();
        let shown = shown.filter_map(|(column, (width, cell))| Some((column, (*width)?, cell)));
        let mut line = String::new();
        // Space is owed until there is something to write behind it.
        let mut owed = 0;
        for (column, width, cell) in shown {
            // Prose says most at its beginning; an id is known by both its ends.
            let cut = if Some(column) == self.elastic { shortened } else { shortened_within };
            let cell = cut(cell, width);
            if !cell.is_empty() {
                let style = style(column);
                line.extend(std::iter::repeat_n(' ', owed));
                line.push_str(&format!("{style}{cell}{style:#}"));
                owed = 0;
            }
            owed += width.saturating_sub(cell.width()) + GAP;
        }
        line
    }
}
