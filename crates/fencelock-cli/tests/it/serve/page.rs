use super::client::Server;
use crate::backend::TestBackend;
use serde_json::Value;

const PAGE: &str = include_str!("../../../../../docs/en/serve.md");
/// Values that differ from those of the page: of these members, only the type is compared.
const VARYING: [&str; 7] = ["version", "token", "tokens", "remaining", "waited", "pid", "next"];

/// Whether a message is that of an example.
fn is_example(wanted: &Value, found: &Value, name: &str) -> bool {
    match (wanted, found) {
        (Value::String(any), _) if any == "…" => true,
        (Value::Object(wanted), Value::Object(found)) => {
            wanted.keys().eq(found.keys()) && wanted.iter().all(|(name, wanted)| is_example(wanted, &found[name], name))
        }
        (Value::Array(wanted), Value::Array(found)) => {
            wanted.len() == found.len()
                && wanted.iter().zip(found).all(|(wanted, found)| is_example(wanted, found, name))
        }
        (Value::Number(wanted), Value::Number(found)) if VARYING.contains(&name) => wanted.is_u64() == found.is_u64(),
        (Value::String(_), Value::String(_)) if VARYING.contains(&name) => true,
        (wanted, found) => wanted == found,
    }
}

#[test]
fn the_examples_of_the_page_are_what_is_answered() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "");
    let mut methods = Vec::new();
    for block in PAGE.split("```text\n").skip(1) {
        let mut session = server.session();
        for line in block.split("```").next().unwrap().lines() {
            if let Some(request) = line.strip_prefix("--> ") {
                let parsed: Value = serde_json::from_str(request).expect(request);
                assert!(Schema::read().accepts(&parsed), "not by the schema: {request}");
                methods.push(parsed["method"].as_str().unwrap().to_owned());
                session.write(format!("{request}\n"));
            } else {
                let wanted = line.strip_prefix("<-- ").unwrap_or_else(|| panic!("neither asked nor answered: {line}"));
                let found = session.next().expect(line);
                assert!(
                    is_example(&serde_json::from_str(wanted).expect(wanted), &found, ""),
                    "{found}\nwanted: {wanted}"
                );
            }
        }
    }
    methods.sort();
    methods.dedup();
    let all = ["cancel", "elect", "hello", "list", "lock", "once", "release", "remaining", "status"];
    assert_eq!(methods, all, "each has an example");
}

/// docs/en/serve.schema.json, with as much of JSON Schema as it uses.
pub(super) struct Schema(Value);

impl Schema {
    pub(super) fn read() -> Self {
        Self(serde_json::from_str(include_str!("../../../../../docs/en/serve.schema.json")).unwrap())
    }

    pub(super) fn accepts(&self, value: &Value) -> bool {
        self.is(&self.0, value)
    }

    fn is(&self, schema: &Value, value: &Value) -> bool {
        let number = |value: &Value| value.as_f64().unwrap();
        let size = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
        let members = value.as_object();
        schema.as_object().unwrap().iter().all(|(keyword, rule)| match keyword.as_str() {
            "$schema" | "title" | "$defs" => true,
            "$ref" => self.is(self.0.pointer(&rule.as_str().unwrap()[1..]).unwrap(), value),
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "type" => match rule.as_str().unwrap() {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "null" => value.is_null(),
                "integer" => value.is_i64() || value.is_u64(),
                "number" => value.is_number(),
                unknown => panic!("the type {unknown}"),
            },
            "anyOf" => rule.as_array().unwrap().iter().any(|rule| self.is(rule, value)),
            "oneOf" => rule.as_array().unwrap().iter().filter(|rule| self.is(rule, value)).count() == 1,
            "required" => members.is_none_or(|members| {
                rule.as_array().unwrap().iter().all(|name| members.contains_key(name.as_str().unwrap()))
            }),
            "properties" => members.is_none_or(|members| {
                members.iter().all(|(name, value)| rule.get(name).is_none_or(|rule| self.is(rule, value)))
            }),
            "additionalProperties" => {
                members.is_none_or(|members| members.keys().all(|name| schema["properties"].get(name).is_some()))
            }
            "items" => value.as_array().is_none_or(|items| items.iter().all(|item| self.is(rule, item))),
            "minItems" => value.as_array().is_none_or(|items| items.len() >= size(rule)),
            "maxItems" => value.as_array().is_none_or(|items| items.len() <= size(rule)),
            "maxLength" => value.as_str().is_none_or(|text| text.len() <= size(rule)),
            "minimum" => !value.is_number() || number(value) >= number(rule),
            "maximum" => !value.is_number() || number(value) <= number(rule),
            unknown => panic!("the keyword {unknown}"),
        })
    }
}
