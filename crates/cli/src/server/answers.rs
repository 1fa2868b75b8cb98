//! What the page asks, by path, and what it is told. It knows no HTTP: the page in one file holds the
//! same answers.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use plimsoll_core::{
    cards,
    explanation::Explanation,
    failures::Failure,
    scene::{Axis, Grouping, Position, Scene, Scenes, WindowRequest},
    units::Bytes,
    views::page,
};

/// The recordings that are shown.
pub(crate) struct Gallery<'a> {
    recordings: &'a [Scenes<'a>],
    /// By recording: the failures that its texts tell of, and what could not be read.
    told: Vec<(Vec<Failure>, Vec<String>)>,
    /// By recording: what `explain` says of it.
    explained: Vec<OnceLock<Explanation>>,
    /// Somebody has seen a timeline.
    seen: AtomicBool,
}

/// An answer.
pub(crate) struct Reply {
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
}

/// What an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Html,
    Css,
    Script,
    Json,
    Columns,
    Svg,
}

/// An answer, or the sentence why there is none.
pub(crate) type Answer = Result<Reply, String>;

impl Reply {
    pub(crate) fn json(text: String) -> Reply {
        Reply { kind: Kind::Json, bytes: text.into_bytes() }
    }

    pub(crate) fn error(sentence: &str) -> Reply {
        Reply::json(page::error(sentence))
    }
}

impl<'a> Gallery<'a> {
    /// `told` has for each recording the failures that its texts tell of, and what could not be read.
    pub(crate) fn new(
        recordings: &'a [Scenes<'a>],
        told: Vec<(Vec<Failure>, Vec<String>)>,
    ) -> Gallery<'a> {
        let explained = recordings.iter().map(|_| OnceLock::new()).collect();
        Gallery { recordings, told, explained, seen: AtomicBool::new(false) }
    }

    /// All devices of all recordings, as the page counts them.
    pub(crate) fn scenes(&self) -> impl Iterator<Item = &'a Scene<'a>> {
        self.recordings.iter().flat_map(|it| &it.scenes)
    }

    /// The answer to `path`, such as `api/moment?r=0&position=12`; none if there is nothing there.
    pub(crate) fn answer(&self, path: &str) -> Option<Answer> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let name = path.strip_prefix("api/")?;
        let query = Query(form_urlencoded::parse(query.as_bytes()).into_owned().collect());
        let json = |text: Result<String, String>| Some(text.map(Reply::json));
        match name {
            "overview" => json(Ok(page::overview(self.recordings))),
            "cards" => json(Ok(page::cards(cards::catalogue()))),
            "analysis" => json(Ok(self.analysis())),
            "marks" => json(self.scene(&query, "r").map(page::marks)),
            "moment" => json(self.moment(&query)),
            "changes" => json(self.changes(&query)),
            "block" => json(self.block(&query)),
            "map" => json(self.map(&query)),
            "search" => json(self.search(&query)),
            "what-if" => json(self.what_if(&query)),
            "window" => Some(self.window(&query)),
            _ => None,
        }
    }

    /// Works out beforehand what is slow on large recordings and the same every time, until `is_over`. It
    /// begins when the first picture was asked for, which is not to wait for it.
    pub(crate) fn prepare(&self, is_over: &dyn Fn() -> bool) {
        while !self.seen.load(Ordering::Relaxed) && !is_over() {
            thread::sleep(Duration::from_millis(100));
        }
        for index in 0..self.recordings.len() {
            if is_over() {
                return;
            }
            self.explanation(index);
        }
    }

    fn explanation(&self, index: usize) -> &Explanation {
        self.explained[index].get_or_init(|| {
            let (messages, notes) = &self.told[index];
            let mut res = self.recordings[index].explanation(messages);
            res.notes.extend(notes.iter().cloned());
            res
        })
    }

    fn analysis(&self) -> String {
        let all = (0..self.recordings.len()).map(|it| self.explanation(it));
        page::analysis(all)
    }

    fn moment(&self, query: &Query) -> Result<String, String> {
        let scene = self.scene(query, "r")?;
        Ok(page::moment(scene, &scene.moment(position(scene, query, "position")?)))
    }

    fn changes(&self, query: &Query) -> Result<String, String> {
        let (before, after) = (self.scene(query, "r")?, self.scene(query, "other")?);
        let from = position(before, query, "position")?;
        let to = position(after, query, "with")?;
        Ok(page::changes(&before.changes(from, after, to)))
    }

    fn block(&self, query: &Query) -> Result<String, String> {
        let scene = self.scene(query, "r")?;
        let block = scene.block(query.number("life")?).ok_or("there is no such block")?;
        Ok(page::block(scene, &block))
    }

    fn map(&self, query: &Query) -> Result<String, String> {
        let scene = self.scene(query, "r")?;
        Ok(page::map(scene, &scene.map(position(scene, query, "position")?)))
    }

    fn search(&self, query: &Query) -> Result<String, String> {
        Ok(page::hits(&self.scene(query, "r")?.search(query.text("words")?)))
    }

    fn what_if(&self, query: &Query) -> Result<String, String> {
        let scene = self.scene(query, "r")?;
        let capacity = match query.get("capacity") {
            Some(text) if !text.is_empty() => {
                Some(text.parse::<Bytes>().map_err(|it| it.to_string())?)
            }
            _ => None,
        };
        let res = scene.what_if(capacity, query.get("conf"), query.number("columns")?);
        res.map(|it| page::what_if(&it)).map_err(|it| it.to_string())
    }

    fn window(&self, query: &Query) -> Answer {
        self.seen.store(true, Ordering::Relaxed);
        let scene = self.scene(query, "r")?;
        let request = WindowRequest {
            axis: match query.text("axis")? {
                "time" => Axis::Time,
                _ => Axis::Events,
            },
            from: query.number("from")?,
            to: query.number("to")?,
            columns: query.number("columns")?,
            least: Bytes(query.number("least")?),
            grouping: match query.text("by")? {
                "line" => Grouping::Line,
                "pool" => Grouping::Pool,
                _ => Grouping::Category,
            },
        };
        let window = scene.window(&request);
        Ok(Reply { kind: Kind::Columns, bytes: page::window(scene, request.axis, &window) })
    }

    fn scene(&self, query: &Query, key: &str) -> Result<&'a Scene<'a>, String> {
        let index: usize = query.number(key)?;
        self.scenes().nth(index).ok_or_else(|| format!("there is no recording {index}"))
    }
}

fn position(scene: &Scene<'_>, query: &Query, key: &str) -> Result<Position, String> {
    let text = query.text(key)?;
    page::position(scene, text).ok_or_else(|| {
        format!("{text:?} is no moment: expected `peak` or a number below {}", scene.end())
    })
}

/// What stands behind the question mark.
struct Query(Vec<(String, String)>);

impl Query {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|it| it.0 == key).map(|it| it.1.as_str())
    }

    fn text(&self, key: &str) -> Result<&str, String> {
        self.get(key).ok_or_else(|| format!("{key} is missing"))
    }

    fn number<T: std::str::FromStr>(&self, key: &str) -> Result<T, String> {
        let text = self.text(key)?;
        text.parse().map_err(|_| format!("{key}: {text:?} is no number that fits"))
    }
}
