//! `--values`: which values a name in the command of `plimsoll layouts` takes, as in `ac=none,full`.

use std::{fmt, str::FromStr};

/// A name and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FactorValues {
    pub(crate) name: String,
    pub(crate) values: Vec<String>,
}

impl FromStr for FactorValues {
    type Err = String;

    fn from_str(text: &str) -> Result<FactorValues, String> {
        let wrong = || "expected a name and its values, as in `ac=none,full`".to_owned();
        let (name, values) = text.split_once('=').ok_or_else(wrong)?;
        let values: Vec<String> = values.split(',').map(|it| it.trim().to_owned()).collect();
        if name.is_empty() || values.iter().any(String::is_empty) {
            return Err(wrong());
        }
        Ok(FactorValues { name: name.trim().to_owned(), values })
    }
}

impl fmt::Display for FactorValues {
    /// As the user writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.values.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_values() {
        let it: FactorValues = "ac=none, full".parse().unwrap();
        assert_eq!(
            (it.name.as_str(), it.values.as_slice()),
            ("ac", ["none".to_owned(), "full".to_owned()].as_slice())
        );
        assert_eq!(it.to_string(), "ac=none,full");
        for wrong in ["ac", "=1", "ac=", "ac=1,,2"] {
            wrong.parse::<FactorValues>().unwrap_err();
        }
    }
}
