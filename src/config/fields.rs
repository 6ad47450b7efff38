//! The fields of a table that is the value of one setting.

use toml::Spanned;
use toml::de::DeValue;

use super::key::did_you_mean;
use super::value::{Fault, Read, Written};

/// The fields of a table that is the value of one setting.
pub(super) struct Fields<'a> {
    value: &'a Spanned<DeValue<'a>>,
    known: Vec<&'static str>,
    /// What is wrong so far.
    pub(super) faults: Vec<Fault>,
}

impl<'a> Fields<'a> {
    /// The fields of `value`, which is a table.
    pub(super) fn of(value: &'a Spanned<DeValue<'a>>) -> Self {
        Self {
            value,
            known: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// Reads one field where it is there; what is wrong with it is remembered.
    pub(super) fn take<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(Written<'a>) -> Read<T>,
    ) -> Option<T> {
        self.known.push(name);
        let field = self.value.get_ref().get(name)?;
        match read(Written::Toml(field)) {
            Ok(value) => Some(value),
            Err(faults) => {
                self.faults.extend(faults.into_iter().map(|fault| Fault {
                    at: fault.at.or_else(|| Some(field.span())),
                    what: format!("{name}: {}", fault.what),
                }));
                None
            }
        }
    }

    /// How many of `names` are there.
    pub(super) fn count_of(&self, names: &[&str]) -> usize {
        let there = |name: &&&str| self.value.get_ref().get(**name).is_some();
        names.iter().filter(there).count()
    }

    /// Refuses fields that nobody took, and everything that was wrong.
    pub(super) fn finish(mut self) -> Read<()> {
        let table = self.value.get_ref().as_table();
        for (name, _) in table.into_iter().flat_map(|table| table.iter()) {
            let text = name.get_ref().as_ref();
            if !self.known.contains(&text) {
                let like = did_you_mean(text, self.known.iter().copied());
                let what = format!("unknown key '{text}'{like}");
                self.faults.push(Fault::at(name.span(), what));
            }
        }
        if self.faults.is_empty() {
            Ok(())
        } else {
            Err(self.faults)
        }
    }
}
