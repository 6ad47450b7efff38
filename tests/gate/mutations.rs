//! Threat 7: whatever is put into a captured body at any place where the API looks is refused by
//! its name, and nothing is refused where the API does not look.

use labproxy::proxy::gate::{GatePolicy, GateRefusal, check_count_tokens, check_messages};
use serde_json::{Value, json};

use crate::support::captures;

/// Keys whose values the API hands on without looking inside.
const OPAQUE: [&str; 4] = ["input", "input_schema", "schema", "safeguards"];

/// Paths of all objects that the API looks into, and of all that it does not.
fn objects(value: &Value, path: &str, opaque: bool, found: &mut Vec<(String, bool)>) {
    match value {
        Value::Object(members) => {
            found.push((path.to_owned(), opaque));
            for (key, child) in members {
                let inside = opaque || OPAQUE.contains(&key.as_str());
                objects(child, &format!("{path}/{key}"), inside, found);
            }
        }
        Value::Array(items) => {
            for (index, child) in items.iter().enumerate() {
                objects(child, &format!("{path}/{index}"), opaque, found);
            }
        }
        _ => {}
    }
}

fn judge(target: &str, body: &Value) -> Result<(), GateRefusal> {
    let text = body.to_string();
    let policy = GatePolicy::default();
    if target.ends_with("count_tokens") {
        check_count_tokens(text.as_bytes(), &policy)
    } else {
        check_messages(text.as_bytes(), &policy).map(drop)
    }
}

/// The same body with its long texts cut: what is put in beside them does not depend on them.
fn short(body: Value) -> Value {
    match body {
        Value::String(text) if text.len() > 200 => json!("cut"),
        Value::Array(items) => items.into_iter().map(short).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(key, value)| (key, short(value)))
            .collect(),
        other => other,
    }
}

/// Every body that passes, with where it was sent.
fn passing() -> Vec<(String, String, Value)> {
    captures()
        .into_iter()
        .filter_map(|capture| {
            let target = capture.target.path().to_owned();
            let body = capture.body?;
            judge(&target, &body).ok()?;
            let body = short(body);
            Some((capture.file, target, body))
        })
        .collect()
}

fn mutated(body: &Value, path: &str, key: &str, value: Value) -> Value {
    let mut body = body.clone();
    body.pointer_mut(path).unwrap()[key] = value;
    body
}

/// An unknown key is refused by name at every object, and passes inside tool inputs and schemas.
#[test]
fn t07_an_unknown_key_is_refused_wherever_the_api_looks() {
    let (mut refused, mut passed) = (0, 0);
    for (file, target, body) in passing() {
        let mut found = Vec::new();
        objects(&body, "", false, &mut found);
        for (path, opaque) in found {
            let body = mutated(&body, &path, "surcharge", json!({ "type": "surcharge" }));
            match judge(&target, &body) {
                Err(GateRefusal::Feature { what, remedy, .. }) if !opaque => {
                    assert!(what.contains("surcharge"), "{file} {path}: {what}");
                    assert!(remedy.contains("accept = [\"surcharge\"]"), "{remedy}");
                    refused += 1;
                }
                Ok(()) if opaque => passed += 1,
                other => panic!("{file} {path} (opaque: {opaque}): {other:?}"),
            }
        }
    }
    assert!(
        refused > 700 && passed > 500,
        "{refused} refused, {passed} passed"
    );
}

/// An unknown type is refused by name at every object that has one.
#[test]
fn t07_an_unknown_type_is_refused_wherever_the_api_looks() {
    let mut refused = 0;
    for (file, target, body) in passing() {
        let mut found = Vec::new();
        objects(&body, "", false, &mut found);
        for (path, opaque) in found {
            let typed = body.pointer(&path).unwrap().get("type").is_some();
            if opaque || !typed {
                continue;
            }
            let body = mutated(&body, &path, "type", json!("surcharge_20270101"));
            match judge(&target, &body) {
                Err(GateRefusal::Feature { what, remedy, .. }) => {
                    assert!(
                        what.contains("'surcharge_20270101'"),
                        "{file} {path}: {what}"
                    );
                    assert!(remedy.contains("surcharge_20270101"), "{remedy}");
                    refused += 1;
                }
                other => panic!("{file} {path}: {other:?}"),
            }
        }
    }
    assert!(refused > 200, "{refused}");
}

/// An unknown block, edit, tool or system block is refused by name in every list that has such.
#[test]
fn t07_an_unknown_item_is_refused_in_every_list() {
    let mut refused = 0;
    for (file, target, body) in passing() {
        let mut lists = vec!["/messages/0/content", "/system", "/tools"];
        lists.push("/context_management/edits");
        for list in lists {
            let Some(Value::Array(_)) = body.pointer(list) else {
                continue;
            };
            let mut body = body.clone();
            let items = body.pointer_mut(list).unwrap().as_array_mut().unwrap();
            items.push(json!({ "type": "surcharge_20270101" }));
            match judge(&target, &body) {
                Err(GateRefusal::Feature { what, .. }) => {
                    assert!(
                        what.contains("'surcharge_20270101'"),
                        "{file} {list}: {what}"
                    );
                    refused += 1;
                }
                other => panic!("{file} {list}: {other:?}"),
            }
        }
    }
    assert!(refused > 80, "{refused}");
}

/// A real `speed` is refused at every object that the API looks into; in tool inputs and schemas it
/// is data.
#[test]
fn t36_speed_is_refused_where_it_is_real_and_passes_as_data() {
    for (file, target, body) in passing() {
        let mut found = Vec::new();
        objects(&body, "", false, &mut found);
        for (path, opaque) in found {
            let body = mutated(&body, &path, "speed", json!("fast"));
            match (judge(&target, &body), path.as_str(), opaque) {
                (Err(GateRefusal::Fast), "", false) | (Ok(()), _, true) => {}
                (Err(GateRefusal::Feature { what, .. }), _, false) => {
                    assert!(what.contains(".speed"), "{file} {path}: {what}");
                }
                (other, ..) => panic!("{file} {path}: {other:?}"),
            }
        }
    }
}
