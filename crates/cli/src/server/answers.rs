//! What the page asks, by path, and what it is told. It knows no HTTP: the page in one file holds the
//! same data.

use std::{
    path::Path,
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
    scene::{Axis, Grouping, LifeId, Pick, Position, Scene, Scenes, Weigh, WindowRequest},
    units::Bytes,
    views::page,
};

use crate::{files::bounded_file, server::live::Live};

/// Lines of code that are shown before and after the one that matters.
const AROUND: usize = 2;
/// The recordings that are shown.
pub(crate) struct Gallery<'a> {
    recordings: &'a [Scenes<'a>],
    told: Vec<Companions>,
    /// By recording: what `explain` says of it.
    explained: Vec<OnceLock<Explanation>>,
    /// Somebody has seen a timeline.
    seen: AtomicBool,
    /// A run that is going on.
    live: Option<Live>,
}

/// What is known of a recording beside it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Companions {
    /// The failures that its texts tell of.
    pub(crate) messages: Vec<Failure>,
    /// What could not be read.
    pub(crate) notes: Vec<String>,
    /// Whether that was the end of it.
    pub(crate) is_damaged: bool,
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
    pub(crate) fn new(recordings: &'a [Scenes<'a>], told: Vec<Companions>) -> Gallery<'a> {
        let explained = recordings.iter().map(|_| OnceLock::new()).collect();
        Gallery { recordings, told, explained, seen: AtomicBool::new(false), live: None }
    }

    /// No recording, but a run that is going on.
    pub(crate) fn of_run(live: Live) -> Gallery<'a> {
        Gallery { live: Some(live), ..Gallery::new(&[], Vec::new()) }
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
            "overview" => {
                json(Ok(page::overview(self.recordings, &self.damage(), self.live.is_some())))
            }
            "live" => {
                let from = query.number("from").unwrap_or(0);
                self.live.as_ref().map(|it| Ok(Reply::json(it.answer(from))))
            }
            "cards" => json(Ok(page::cards(cards::catalogue()))),
            "analysis" => json(Ok(self.analysis())),
            "marks" => json(self.scene(&query, "r").map(page::marks)),
            "moment" => json(self.moment(&query)),
            "changes" => json(self.changes(&query)),
            "block" => json(self.block(&query)),
            "map" => json(self.map(&query)),
            "select" => json(self.select(&query)),
            "layers" => json(self.layers(&query)),
            "events" => json(self.events(&query)),
            "find-event" => json(self.find_event(&query)),
            "stretch" => json(self.stretch(&query)),
            "holes" => json(self.holes(&query)),
            "source" => json(self.source(&query)),
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
            let told = &self.told[index];
            let mut res = self.recordings[index].explanation(&told.messages);
            res.heed(told.notes.iter().cloned(), told.is_damaged);
            res
        })
    }

    fn analysis(&self) -> String {
        let all = (0..self.recordings.len()).map(|it| (&self.recordings[it], self.explanation(it)));
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

    /// Of each recording that was not read to its end, why.
    pub(crate) fn damage(&self) -> Vec<Option<String>> {
        let sentence = |read: &Companions| {
            read.is_damaged.then(|| {
                let why = read.notes.first().map(|it| format!(": {it}")).unwrap_or_default();
                format!("This file is cut off or damaged{why}. The page shows the part before that; later events, and the blocks that were live at the end, are unknown.")
            })
        };
        self.told.iter().map(sentence).collect()
    }

    fn select(&self, query: &Query) -> Result<String, String> {
        let scene = self.scene(query, "r")?;
        let text = query.text("of")?;
        let mut title = None;
        let pick = match text.strip_prefix("finding:") {
            Some(index) => {
                let (pick, sentence) = self.of_finding(scene, query.number("r")?, index)?;
                title = Some(sentence);
                Some(pick)
            }
            None => match Pick::of(text) {
                Some(Pick::Words(words, _)) => {
                    let also = self.found_by(scene, query.number("r")?, &words);
                    Some(Pick::Words(words, also))
                }
                pick => pick,
            },
        };
        let pick = pick.ok_or_else(|| {
            format!("{text:?} is not a selection: expected words:…, owner:…, category:…, module:…, stacks:…, lives:… or finding:…")
        })?;
        let mut selection = scene.select(&pick, position(scene, query, "position")?);
        if let Some(title) = title {
            selection.by = title;
        }
        Ok(page::selection(&selection))
    }

    /// The blocks that a finding counts.
    fn of_finding(
        &self,
        scene: &Scene<'_>,
        r: usize,
        index: &str,
    ) -> Result<(Pick, String), String> {
        let recording = self.recording_of(r);
        let index: usize = index.parse().map_err(|_| format!("{index:?} is not a number"))?;
        let finding = self.explanation(recording).findings.get(index);
        let finding = finding.ok_or_else(|| format!("there is no finding {index}"))?;
        if finding.shown.is_empty() || finding.device != scene.device() {
            return Err("this finding counts no blocks here".to_owned());
        }
        Ok((Pick::Lives(scene.lives_of(&finding.shown)), finding.title.clone()))
    }

    /// The blocks of the findings that have these words.
    fn found_by(&self, scene: &Scene<'_>, r: usize, words: &str) -> Vec<LifeId> {
        let text = words.trim().to_lowercase();
        let has = |it: &str| !text.is_empty() && it.to_lowercase().contains(&text);
        let findings = &self.explanation(self.recording_of(r)).findings;
        let meant = findings.iter().filter(|finding| {
            finding.device == scene.device()
                && (has(finding.code.word())
                    || has(&finding.title)
                    || finding.evidence.iter().any(|it| has(it)))
        });
        meant.flat_map(|it| scene.lives_of(&it.shown)).collect()
    }

    /// How many findings there are of the scene `r`.
    pub(crate) fn findings_of(&self, r: usize) -> usize {
        self.explanation(self.recording_of(r)).findings.len()
    }

    /// The recording that the scene `r` is of.
    fn recording_of(&self, r: usize) -> usize {
        let mut left = r;
        for (index, it) in self.recordings.iter().enumerate() {
            match left.checked_sub(it.scenes.len()) {
                Some(it) => left = it,
                None => return index,
            }
        }
        self.recordings.len().saturating_sub(1)
    }

    fn layers(&self, query: &Query) -> Result<String, String> {
        let scene = self.scene(query, "r")?;
        let position = position(scene, query, "position")?;
        Ok(page::layers(&scene.layers(position, grouping(query)?)))
    }

    fn events(&self, query: &Query) -> Result<String, String> {
        let scene = self.scene(query, "r")?;
        let n = query.number::<u32>("n")?.min(1000);
        Ok(page::happened(scene, &scene.happened(query.number("from")?, n)))
    }

    /// The next event after `from`, or the one before it, that some words mean.
    fn find_event(&self, query: &Query) -> Result<String, String> {
        let scene = self.scene(query, "r")?;
        let words = query.text("words")?;
        let all = scene.events_of(words, &self.found_by(scene, query.number("r")?, words));
        let from: Position = query.number("from")?;
        let is_back = query.get("back").is_some_and(|it| it == "1");
        let next = if is_back {
            let before = all.partition_point(|it| *it < from);
            before.checked_sub(1).or(all.len().checked_sub(1))
        } else {
            let after = all.partition_point(|it| *it <= from);
            Some(if after < all.len() { after } else { 0 })
        };
        Ok(page::found_events(&all, next))
    }

    fn stretch(&self, query: &Query) -> Result<String, String> {
        let scene = self.scene(query, "r")?;
        let weigh = if query.text("weigh")? == "held" { Weigh::Held } else { Weigh::Made };
        let range = (query.number("from")?, query.number("to")?);
        Ok(page::trees(&scene.stretch(range, weigh)))
    }

    fn holes(&self, query: &Query) -> Result<String, String> {
        let scene = self.scene(query, "r")?;
        let columns = scene.moments(&request(query)?);
        let holes: Vec<_> = columns.iter().map(|it| scene.free_at(it.position)).collect();
        Ok(page::holes(&holes))
    }

    /// A few lines of a Python file that the recording names, as it is on this machine now.
    fn source(&self, query: &Query) -> Result<String, String> {
        let scene = self.scene(query, "r")?;
        let (file, line) = (query.text("file")?, query.number::<usize>("line")?);
        let missing = || Ok(page::source(line, &[]));
        if !file.ends_with(".py") || !scene.has_file(file) {
            return missing();
        }
        let Ok(text) = bounded_file::text(Path::new(file), bounded_file::SOURCE) else {
            return missing();
        };
        let first = line.saturating_sub(1 + AROUND);
        let lines: Vec<&str> = text.lines().skip(first).take(2 * AROUND + 1).collect();
        Ok(page::source(first + 1, &lines))
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
        let request = request(query)?;
        let window = scene.window(&request);
        Ok(Reply { kind: Kind::Columns, bytes: page::window(scene, request.axis, &window) })
    }

    fn scene(&self, query: &Query, key: &str) -> Result<&'a Scene<'a>, String> {
        let index: usize = query.number(key)?;
        self.scenes().nth(index).ok_or_else(|| format!("there is no recording {index}"))
    }
}

fn request(query: &Query) -> Result<WindowRequest, String> {
    Ok(WindowRequest {
        axis: match query.text("axis")? {
            "time" => Axis::Time,
            _ => Axis::Events,
        },
        from: query.number("from")?,
        to: query.number("to")?,
        columns: query.number("columns")?,
        least: Bytes(query.number("least")?),
        grouping: grouping(query)?,
    })
}

fn grouping(query: &Query) -> Result<Grouping, String> {
    Ok(match query.text("by")? {
        "line" => Grouping::Line,
        "pool" => Grouping::Pool,
        _ => Grouping::Category,
    })
}

fn position(scene: &Scene<'_>, query: &Query, key: &str) -> Result<Position, String> {
    let text = query.text(key)?;
    page::position(scene, text).ok_or_else(|| {
        format!("{text:?} is not a moment: expected `peak` or a number below {}", scene.end())
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
        text.parse().map_err(|_| format!("{key}: {text:?} is not a number in range"))
    }
}
