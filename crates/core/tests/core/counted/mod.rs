//! What a viewer selects for a finding is what the finding's words count: so many blocks, so many bytes, that line.

use plimsoll_core::{
    explanation::Explanation,
    findings::Finding,
    scene::{Pick, Scene, Scenes},
    units::Bytes,
};

/// Of every finding that counts blocks.
pub(crate) fn agree(name: &str, explanation: &Explanation, scenes: &Scenes<'_>) {
    for finding in explanation.findings.iter().filter(|it| !it.shown.is_empty()) {
        let own = |it: &&Scene<'_>| it.facts().device == finding.device;
        let scene = scenes.scenes.iter().find(own).unwrap();
        agrees(&format!("{name}: {}: {}", finding.code, finding.title), finding, scene);
    }
    let problems = explanation.findings.iter().take_while(|it| it.weight.word() == "problem");
    let n_problems = explanation.findings.iter().filter(|it| it.weight.word() == "problem");
    if explanation.ooms.is_empty() {
        assert_eq!(problems.count(), n_problems.count(), "{name}: what is wrong stands first");
    }
}

fn agrees(name: &str, finding: &Finding, scene: &Scene<'_>) {
    let lives = scene.lives_of(&finding.shown);
    let selection = scene.select(&Pick::Lives(lives), 0);
    let n = selection.lives.len();
    let blocks: Vec<_> = selection.lives.iter().map(|it| scene.block(*it).unwrap()).collect();
    let sum: Bytes = blocks.iter().map(|it| it.size).sum();
    assert_eq!(n, finding.shown.len(), "{name}: each block once");
    assert_eq!(selection.most.0, sum, "{name}: all of them are live at once");
    let words = format!("{}\n{}", finding.title, finding.evidence.join("\n"));
    if finding.code.word() != "leak/earlier-models" {
        assert_eq!(finding.count, n as u64, "{name}");
    }
    let tokens: Vec<&str> = words.split_whitespace().map(|it| it.trim_end_matches(',')).collect();
    let is_count = |it: &&[&str]| it[1] == "blocks" || it[1..] == ["of", "them"];
    for said in tokens.windows(3).filter(is_count).filter_map(|it| it[0].parse::<usize>().ok()) {
        assert_eq!(said, n, "{name}: {words}");
    }
    let each = blocks.first().map(|it| format!("{} each", it.requested));
    let is_alike = blocks.iter().all(|it| it.requested == blocks[0].requested);
    let says_each = is_alike && each.is_some_and(|it| words.contains(&it));
    assert!(says_each || words.contains(&sum.to_string()), "{name}: {sum} in {n}: {words}");
    // The line of who holds them is none of the line that made them.
    let Some(at) = finding.made_at.as_ref().or(finding.at.as_ref()) else { return };
    let is_here = |file: &str, line: u32| (file, line) == (at.file.as_str(), at.line);
    let of_block = blocks.iter().any(|it| {
        let line = it.line.iter().any(|it| is_here(&it.file, it.line));
        line || it.stack.iter().any(|it| is_here(&it.file, it.line))
    });
    // Parts that are joined are of other lines than the request that joins them.
    let base = at.file.rsplit('/').next().unwrap();
    let of_request =
        scene.refusals().iter().any(|it| it.line.contains(&format!("{base}:{}", at.line)));
    assert!(of_block || of_request, "{name}: {}:{}", at.file, at.line);
}
