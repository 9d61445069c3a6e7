//! From what is asked for to a plan. Nothing is made on the way.

use bake_config::{Environment, Origin, Text};
use bake_core::{Bake, BaseQuery, Planned, Region};
use bake_engine::{Mutations, RunId, RunSpec};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::asked::Asked;
use crate::configuration::Configuration;
use crate::failure::{self, Advice};
use crate::places::Places;
use crate::plugins::{self, Overrides};
use crate::variables;

/// A bake that is ready to be carried out.
pub(crate) struct Prepared {
    pub(crate) asked: Asked,
    pub(crate) environment: Environment,
    pub(crate) bake: Bake,
    pub(crate) mutations: Mutations,
    pub(crate) planned: Planned,
    /// Equal for two bakes of the same request.
    pub(crate) key: String,
    id: RunId,
    started: jiff::Timestamp,
}

impl Prepared {
    /// Puts everything together and plans it. `id` and `started` are those of the run, or of one that might be.
    pub(crate) fn new(
        configuration: &Configuration,
        asked: Asked,
        id: RunId,
        started: jiff::Timestamp,
    ) -> anyhow::Result<Self> {
        let environment = configuration.environment(asked.env.as_deref())?;
        let mut mutations = Mutations::new();
        let bake = bake(&asked, &environment, &configuration.places, &mut mutations, &id, started)?;
        let mistakes = bake.composition.mistakes(&bake.known, bake.name.as_ref());
        if !mistakes.is_empty() {
            return Err(failure::refused(&mistakes).into());
        }
        let planned = bake.plan().map_err(|mistake| failure::refused(&[mistake]))?;
        let key = request_key(&bake, &environment, &configuration.places, asked.partition);
        Ok(Self { asked, environment, bake, mutations, planned, key, id, started })
    }

    pub(crate) fn id(&self) -> &RunId {
        &self.id
    }

    /// Says what it is, for people: "hello in local_apt_linux".
    pub(crate) fn title(&self) -> String {
        format!("{} in {}", self.bake.request.title(), self.environment.name)
    }

    /// The environment as the journal and a plan's file keep it, with what was asked for.
    pub(crate) fn config(&self) -> Value {
        let mut config = self.environment.to_json();
        config["asked"] = serde_json::to_value(&self.asked).expect("its fields are texts and numbers");
        config
    }

    /// What the journal is told of the run.
    pub(crate) fn spec(&self) -> RunSpec {
        RunSpec {
            id: self.id.clone(),
            title: self.title(),
            request_key: self.key.clone(),
            config: self.config(),
            plugins: plugins_in_use(&self.environment),
            started: self.started,
        }
    }
}

fn bake(
    asked: &Asked,
    environment: &Environment,
    places: &Places,
    mutations: &mut Mutations,
    id: &RunId,
    started: jiff::Timestamp,
) -> anyhow::Result<Bake> {
    let request = asked.request()?;
    let overrides = Overrides { partition: asked.partition };
    let composition = plugins::compose(environment, &overrides, places, mutations)
        .map_err(|error| Advice::usage(format!("{error:#}")))?;
    for spec in &request.packages {
        composition.provisioner.accepts(spec).map_err(Advice::usage)?;
    }
    if asked.name.as_ref().is_some_and(|name| name.trim().is_empty()) {
        return Err(Advice::usage("the name after `--name` is empty").into());
    }
    let variables = variables::variables(environment, &asked.variables);
    let known = variables::known(&variables, environment, id.as_str(), started)?;
    let name = asked.name.clone().map(|text| Text { text, origin: Origin::named("--name") });
    let base = BaseQuery { wanted: asked.base.clone(), region: asked.region.as_deref().map(Region::from) };
    Ok(Bake { composition, base, request, known, name, steps: environment.steps.clone() })
}

/// The plugins of an environment with their versions.
fn plugins_in_use(environment: &Environment) -> Value {
    use bake_config::PluginKind;
    let catalog = plugins::catalog();
    let slots = PluginKind::ALL.into_iter().filter_map(|kind| Some((kind, &environment.chosen(kind)?.plugin)));
    let finalizers = environment.finalizer_set.members().map(|member| (PluginKind::Finalizer, &member.plugin));
    let versions = slots
        .chain(finalizers)
        .filter_map(|(kind, name)| Some((format!("{kind} {name}"), catalog.get(kind, name)?.version)));
    let own = ("bake".to_owned(), env!("CARGO_PKG_VERSION"));
    versions.chain([own]).map(|(name, version)| (name, Value::from(version))).collect::<serde_json::Map<_, _>>().into()
}

/// What was asked for, as a hash: the same request of the same installation, whenever it is made and whoever makes it.
fn request_key(bake: &Bake, environment: &Environment, places: &Places, partition: Option<u32>) -> String {
    let asked = serde_json::json!({
        "environment": environment.to_json(), "packages": bake.request, "base": bake.base,
        "name": bake.name.as_ref().map(|name| &name.text), "partition": partition, "journal": places.journal(),
    });
    let digest = Sha256::digest(asked.to_string().as_bytes());
    digest[..10].iter().map(|byte| format!("{byte:02x}")).collect()
}
