//! `--where`: what a layout has to satisfy, as in `tp<=8` or `tp*pp==16`.

use std::{fmt, str::FromStr};

/// A comparison of two products. Names stand for the values of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Constraint {
    text: String,
    left: Product,
    relation: Relation,
    right: Product,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    AtMost,
    AtLeast,
    Equal,
    Differs,
    Less,
    More,
}

/// The longer ones first: `<=` begins as `<` does.
const RELATIONS: [(&str, Relation); 7] = [
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("==", Relation::Equal),
    ("!=", Relation::Differs),
    ("<", Relation::Less),
    (">", Relation::More),
    ("=", Relation::Equal),
];

/// Factors from left to right.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Product {
    first: String,
    rest: Vec<(char, String)>,
}

impl Constraint {
    /// Whether a layout satisfies it, whose values `value_of` knows by name. An error names what has no value.
    pub(crate) fn holds(&self, value_of: impl Fn(&str) -> Option<String>) -> Result<bool, String> {
        let (one, other) = (self.left.value(&value_of)?, self.right.value(&value_of)?);
        let numbers = one.parse::<u64>().ok().zip(other.parse::<u64>().ok());
        Ok(match (self.relation, numbers) {
            (Relation::Equal, None) => one == other,
            (Relation::Differs, None) => one != other,
            (_, None) => {
                let sides = [&self.left, &self.right];
                return Err(match sides.into_iter().find_map(|it| it.unknown(&value_of)) {
                    Some(name) => format!("`{name}` has no value in the command"),
                    None => {
                        format!("`{self}` compares {one} and {other}, which are not whole numbers")
                    }
                });
            }
            (Relation::Equal, Some((a, b))) => a == b,
            (Relation::Differs, Some((a, b))) => a != b,
            (Relation::AtMost, Some((a, b))) => a <= b,
            (Relation::AtLeast, Some((a, b))) => a >= b,
            (Relation::Less, Some((a, b))) => a < b,
            (Relation::More, Some((a, b))) => a > b,
        })
    }
}

impl Product {
    /// Its name, if it is one without a value.
    fn unknown(&self, value_of: &impl Fn(&str) -> Option<String>) -> Option<&str> {
        let is_unknown = is_name(&self.first) && value_of(&self.first).is_none();
        (self.rest.is_empty() && is_unknown).then_some(self.first.as_str())
    }

    fn value(&self, value_of: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
        let of = |word: &String| value_of(word).unwrap_or_else(|| word.clone());
        if self.rest.is_empty() {
            return Ok(of(&self.first));
        }
        let number = |word: &String| {
            let text = of(word);
            let is_unknown = is_name(word) && value_of(word).is_none();
            text.parse::<u64>().map_err(|_| {
                let what = if is_unknown {
                    "has no value in the command"
                } else {
                    "is not a whole number"
                };
                format!("`{word}` {what}")
            })
        };
        let mut res = number(&self.first)?;
        for (operator, word) in &self.rest {
            let by = number(word)?;
            res = match operator {
                '*' => res.saturating_mul(by),
                '/' => res.checked_div(by).ok_or_else(|| format!("`{word}` is 0"))?,
                _ => res.checked_rem(by).ok_or_else(|| format!("`{word}` is 0"))?,
            };
        }
        Ok(res.to_string())
    }
}

/// Whether a word stands for a value; others are numbers.
fn is_name(word: &str) -> bool {
    word.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_')
}

impl FromStr for Product {
    type Err = String;

    fn from_str(text: &str) -> Result<Product, String> {
        let wrong = || {
            format!(
                "expected a name or a number, or several with * / or % between, as in `tp*pp`, and found `{text}`"
            )
        };
        let is_operator = |it: char| matches!(it, '*' | '/' | '%');
        let mut words = text.split(is_operator).map(|it| it.trim().to_owned());
        let is_word = |it: &String| {
            !it.is_empty() && it.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c))
        };
        let first = words.next().filter(is_word).ok_or_else(wrong)?;
        let rest: Vec<(char, String)> =
            text.chars().filter(|it| is_operator(*it)).zip(words).collect();
        if rest.iter().all(|it| is_word(&it.1)) {
            Ok(Product { first, rest })
        } else {
            Err(wrong())
        }
    }
}

impl FromStr for Constraint {
    type Err = String;

    fn from_str(text: &str) -> Result<Constraint, String> {
        let found = text.char_indices().find_map(|(at, _)| {
            let relation = RELATIONS.iter().find(|it| text[at..].starts_with(it.0))?;
            Some((at, relation))
        });
        let Some((at, (sign, relation))) = found else {
            return Err(format!(
                "expected a comparison, as in `tp<=8` or `tp*pp==16`, and found `{text}`"
            ));
        };
        Ok(Constraint {
            text: text.to_owned(),
            left: text[..at].parse()?,
            relation: *relation,
            right: text[at + sign.len()..].parse()?,
        })
    }
}

impl fmt::Display for Constraint {
    /// As the user wrote it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_values_are_compared() {
        let layout = |name: &str| {
            let value = match name {
                "tp" => "8",
                "pp" => "2",
                "ac" => "full",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let holds = |text: &str| text.parse::<Constraint>().unwrap().holds(layout);
        for yes in [
            "tp<=8",
            "tp*pp==16",
            "tp*pp=16",
            "tp % pp == 0",
            "pp < tp",
            "64/tp>=8",
            "ac==full",
            "ac!=none",
        ] {
            assert_eq!(holds(yes), Ok(true), "{yes}");
        }
        for no in ["tp>8", "tp*pp!=16", "ac==none", "pp>=3"] {
            assert_eq!(holds(no), Ok(false), "{no}");
        }
        assert_eq!(holds("ep*tp<=8").unwrap_err(), "`ep` has no value in the command");
        assert_eq!(holds("ep<=8").unwrap_err(), "`ep` has no value in the command");
        assert!(holds("ac<=8").unwrap_err().contains("not whole numbers"));
        for wrong in ["tp", "tp<=", "tp+pp<=8", "<=8", "tp**2<=8"] {
            wrong.parse::<Constraint>().unwrap_err();
        }
    }
}
