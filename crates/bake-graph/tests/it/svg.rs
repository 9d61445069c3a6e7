//! SVG: well-formed, closed to strangers, and nothing on top of anything else.

use std::collections::BTreeMap;

use bake_graph::Drawing;
use proptest::prelude::*;
use roxmltree::{Document, Node};
use serde_json::json;

use crate::plans::{draw, few_cases, runs};
use crate::sample;

#[derive(Debug, Clone, Copy)]
struct Rect {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Rect {
    fn is_inside(&self, outer: &Rect) -> bool {
        outer.left <= self.left && outer.top <= self.top && self.right <= outer.right && self.bottom <= outer.bottom
    }

    fn overlaps(&self, other: &Rect) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    fn holds(&self, (x, y): (f64, f64)) -> bool {
        self.left < x && x < self.right && self.top < y && y < self.bottom
    }
}

/// The boxes of a picture by id, each with the id of the one around it.
fn boxes<'a>(svg: &'a Document<'_>) -> BTreeMap<&'a str, (&'a str, Rect)> {
    let groups = svg.descendants().filter(|node| node.attribute("data-in").is_some());
    groups
        .map(|group| (group.attribute("id").unwrap(), (group.attribute("data-in").unwrap(), rect_of(group))))
        .collect()
}

fn rect_of(group: Node<'_, '_>) -> Rect {
    let rect = group.children().find(|node| node.has_tag_name("rect")).unwrap();
    let [x, y, width, height] =
        ["x", "y", "width", "height"].map(|name| rect.attribute(name).unwrap().parse::<f64>().unwrap());
    Rect { left: x, top: y, right: x + width, bottom: y + height }
}

/// The points of all lines, with some between them.
fn lines(svg: &Document<'_>) -> Vec<Vec<(f64, f64)>> {
    let paths = svg.descendants().filter(|node| node.attribute("class").is_some_and(|class| class.starts_with("line")));
    let placed = paths.filter(|path| !path.ancestors().any(|node| node.attribute("class") == Some("legend")));
    placed.map(|path| points(path.attribute("d").unwrap())).collect()
}

fn points(path: &str) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut commands = Vec::new();
    for (at, char) in path.char_indices().filter(|(_, char)| char.is_ascii_alphabetic()) {
        let end = path[at + 1..].find(|char: char| char.is_ascii_alphabetic()).map_or(path.len(), |end| at + 1 + end);
        let numbers: Vec<f64> = path[at + 1..end].split_whitespace().map(|number| number.parse().unwrap()).collect();
        commands.push((char, numbers));
    }
    for (command, numbers) in commands {
        let last = points.last().copied();
        match (command, &numbers[..]) {
            ('M', &[x, y]) => points.push((x, y)),
            ('V', &[y]) => {
                let (x, from) = last.unwrap();
                points.extend((1..=8).map(|part| (x, from + (y - from) * f64::from(part) / 8.0)));
            }
            ('C', &[x1, y1, x2, y2, x3, y3]) => {
                let (x0, y0) = last.unwrap();
                points.extend((1..=8).map(|part| {
                    let t = f64::from(part) / 8.0;
                    let at = |a: f64, b: f64, c: f64, d: f64| {
                        let s = 1.0 - t;
                        s * s * s * a + 3.0 * s * s * t * b + 3.0 * s * t * t * c + t * t * t * d
                    };
                    (at(x0, x1, x2, x3), at(y0, y1, y2, y3))
                }));
            }
            other => panic!("no line has {other:?}"),
        }
    }
    points
}

/// What may be in a picture: nothing that runs, and nothing from elsewhere.
fn check_harmless(svg: &Document<'_>) {
    for node in svg.descendants().filter(Node::is_element) {
        let name = node.tag_name().name();
        assert!(["svg", "title", "style", "g", "rect", "path", "text", "circle"].contains(&name), "<{name}>");
        for attribute in node.attributes() {
            let name = attribute.name();
            assert!(!name.starts_with("on") && name != "href", "{name}");
        }
        if name == "style" {
            let style = node.text().unwrap();
            assert!(!style.contains("url(") && !style.contains("@import"));
        }
    }
    let odd = |char: char| (char.is_control() && char != '\n') || ('\u{202a}'..='\u{202e}').contains(&char);
    assert!(svg.descendants().filter_map(|node| node.text()).all(|text| !text.contains(odd)));
}

fn check_layout(svg: &Document<'_>) {
    let boxes = boxes(svg);
    let root = svg.root_element();
    let view: Vec<f64> = root.attribute("viewBox").unwrap().split(' ').map(|part| part.parse().unwrap()).collect();
    let shift = root.children().find(|node| node.attribute("transform").is_some()).unwrap();
    let shift = shift.attribute("transform").unwrap().trim_start_matches("translate(").trim_end_matches(')');
    let (dx, dy) = shift.split_once(' ').map(|(x, y)| (x.parse::<f64>().unwrap(), y.parse::<f64>().unwrap())).unwrap();
    let page = Rect { left: -dx, top: -dy, right: view[2] - dx, bottom: view[3] - dy };
    for (id, (outer, rect)) in &boxes {
        let outer = boxes.get(outer).map_or(page, |(_, rect)| *rect);
        assert!(rect.is_inside(&outer), "{id} {rect:?} leaves {outer:?}");
        let siblings = boxes.iter().filter(|(other, (home, _))| *other > id && home == &boxes[id].0);
        for (other, (_, place)) in siblings {
            assert!(!rect.overlaps(place), "{id} {rect:?} overlaps {other} {place:?}");
        }
    }
    for line in lines(svg) {
        for &point in &line[..line.len() - 1] {
            assert!(page.holds(point), "a line leaves the page at {point:?}");
            let nodes = boxes.iter().filter(|(id, _)| id.starts_with('n'));
            for (id, (_, rect)) in nodes {
                // Coordinates are in tenths.
                let core = Rect {
                    left: rect.left + 0.2,
                    top: rect.top + 0.2,
                    right: rect.right - 0.2,
                    bottom: rect.bottom - 0.2,
                };
                assert!(!core.holds(point), "a line runs through {id} at {point:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn whatever_steps_and_errors_are_called_the_picture_is_sound(run in runs()) {
        let text = draw(&run).to_svg();
        let svg = Document::parse(&text).unwrap();
        check_harmless(&svg);
        check_layout(&svg);
        let nodes = boxes(&svg).keys().filter(|id| id.starts_with('n')).count();
        let steps = run.0["steps"].as_object().unwrap().values();
        let work = steps.filter(|step| step["kind"] == "mutation" || step["kind"] == "work").count();
        prop_assert!(nodes >= work, "{} nodes for {} steps", nodes, work);
        prop_assert_eq!(&text, &draw(&run).to_svg());
    }
}

#[test]
fn the_sample_has_a_box_for_each_finalizer_and_region() {
    let text = Drawing::of_run(&sample::in_flight()).unwrap().to_svg();
    let svg = Document::parse(&text).unwrap();
    check_harmless(&svg);
    check_layout(&svg);
    let headings = svg.descendants().filter(|node| node.attribute("class") == Some("heading"));
    let headings: Vec<_> = headings.filter_map(|node| node.text()).collect();
    let expected = [
        "✓ volume",
        "register_ebs_ami",
        "register_s3_ami",
        "tag_artifacts",
        "distribute_images",
        "eu-west-1",
        "us-east-1",
        "us-west-2",
        "asgard_poke",
    ];
    assert_eq!(headings, expected);
    let marks = svg.descendants().filter(|node| node.attribute("class") == Some("node failed loud"));
    assert_eq!(marks.count(), 1);
}

#[test]
fn a_tooltip_says_all_there_is_to_know() {
    let text = Drawing::of_run(&sample::in_flight()).unwrap().to_svg();
    let svg = Document::parse(&text).unwrap();
    let tooltips = svg.descendants().filter(|node| node.has_tag_name("title")).filter_map(|node| node.text());
    let of = |path: &str| tooltips.clone().find(|text| text.lines().next() == Some(path)).unwrap().to_owned();
    insta::assert_snapshot!(of("finalize/distribute_images/us-west-2/ebs"), @r"
    finalize/distribute_images/us-west-2/ebs
    changes: ec2.copy
    calls: CopyImage
    waits with: DescribeImages
    taken back with: DeregisterImage, DeleteSnapshot
    ✗ failed, 3 tries
    error: cannot copy `ami-0f3a` to `us-west-2`
    caused by: ResourceLimitExceeded: 100 images are the limit in us-west-2
    hint: remove images that nobody uses, or ask for a higher limit
    only if: the image is not in `us-west-2` already (it is so)
    needs: identity, finalize/register_ebs_ami/image
    after: finalize/group 1, finalize/group 2
    ");
    insta::assert_snapshot!(of("finalize/distribute_images/eu-west-1/ebs"), @r"
    finalize/distribute_images/eu-west-1/ebs
    changes: ec2.copy
    calls: CopyImage
    waits with: DescribeImages
    taken back with: DeregisterImage, DeleteSnapshot
    ↷ skipped
    only if: the image is not in `eu-west-1` already (it is not so)
    needs: identity, finalize/register_ebs_ami/image
    after: finalize/group 1, finalize/group 2
    ");
}

#[test]
fn boxes_that_wait_for_each_other_are_drawn_as_their_steps() {
    let step = |needs: &[&str]| json!({ "kind": "work", "needs": needs, "after": [] });
    let plan = json!({ "steps": {
        "set/a/first": step(&[]), "set/b/only": step(&["set/a/first"]), "set/a/last": step(&["set/b/only"]),
    }});
    let text = Drawing::of_plan(&plan).unwrap().to_svg();
    let svg = Document::parse(&text).unwrap();
    check_layout(&svg);
    let ids: Vec<_> = boxes(&svg).into_keys().collect();
    assert_eq!(ids, ["n0", "n1", "n2"]);
}

#[test]
fn a_thousand_steps_are_drawn_in_rows_that_fit_a_page() {
    let mut steps = serde_json::Map::new();
    steps.insert("base".into(), json!({ "kind": "work" }));
    for copy in 0..1000 {
        steps.insert(format!("copy {copy}"), json!({ "kind": "work", "needs": ["base"] }));
    }
    let text = Drawing::of_plan(&json!({ "steps": steps })).unwrap().to_svg();
    let svg = Document::parse(&text).unwrap();
    assert_eq!(boxes(&svg).len(), 1001);
    let view: Vec<f64> =
        svg.root_element().attribute("viewBox").unwrap().split(' ').map(|part| part.parse().unwrap()).collect();
    assert!(view[2] < 3.0 * view[3] && view[3] < 3.0 * view[2], "{view:?}");
}
