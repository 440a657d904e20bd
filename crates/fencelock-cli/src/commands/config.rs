use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::json::millis;
use crate::settings::{Origin, Setting, TTL};
use crate::text::{plain, table};
use crate::values;
use serde_json::{Map, json};

/// Shows the settings in force, and where they come from. It contacts no server.
pub(super) async fn config(context: &Context) -> Result<Exit, Failure> {
    let settings = context.settings()?;
    // Without a password. What is wrong with the URL is said below the settings.
    let backend = match context.connect_to_inspect().await {
        Ok(client) => context.identity(&client),
        Err(failure) => Err(failure),
    };
    let (backend, wrong) = backend.map_or_else(|failure| (None, Some(failure)), |backend| (Some(backend), None));
    let exit = || wrong.clone().map_or(Ok(Exit::Success), Err);
    let value = |setting: &Option<Setting>| setting.as_ref().map(|(value, _)| value.clone());
    let from = |setting: &Option<Setting>| setting.as_ref().map(|(_, origin)| origin.to_string());
    let (label, ttl) = (value(&settings.label), value(&settings.ttl).unwrap_or_else(|| TTL.to_owned()));
    let required_by = settings.url_required_by.as_ref().map(Origin::to_string);
    let rows = [
        ("url", backend.clone(), from(&settings.url)),
        ("label", label.clone(), from(&settings.label)),
        ("ttl", Some(ttl.clone()), from(&settings.ttl)),
        ("require_url", Some(required_by.is_some().to_string()), required_by.clone()),
    ];
    if context.report.json {
        let from: Map<_, _> = rows.into_iter().map(|(name, _, origin)| (name.to_owned(), origin.into())).collect();
        let files: Map<_, _> =
            settings.files.iter().map(|(path, found)| (path.display().to_string(), (*found).into())).collect();
        let answer = json!({
            "backend": backend,
            "label": label,
            "ttl_ms": values::span(&ttl).ok().map(millis),
            "require_url": required_by.is_some(),
            "from": from,
            "files": files,
        });
        context.answer(&format!("{answer}\n"))?;
        return exit();
    }
    let or = |text: Option<String>, other: &str| plain(&text.unwrap_or_else(|| other.to_owned()));
    let rows = rows.map(|(name, value, origin)| [name.to_owned(), or(value, "-"), or(origin, "default")]);
    let head = ["SETTING", "VALUE", "FROM"].map(str::to_owned);
    let files = settings.files.iter().map(|(path, found)| [plain(&path.display()), (*found).to_owned()]);
    let files: Vec<_> = [["FILE", "FOUND"].map(str::to_owned)].into_iter().chain(files).collect();
    let settings: Vec<_> = [head].into_iter().chain(rows).collect();
    context.answer(&format!("{}\n{}", table(&settings), table(&files)))?;
    exit()
}
