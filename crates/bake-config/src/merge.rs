//! Laying a stronger tree over a weaker one: tables merge, lists replace, `key+` appends, a clash of types is an error.

use crate::error::ConfigError;
use crate::node::{Entry, Laid, Node, Table, Value};

/// Keys that take a name or a list, so that one may follow the other.
const NAME_OR_LIST: [&str; 4] = ["after", "extends", "finalizer_set", "include"];

/// Lays `stronger` over `weaker`. Where they clash the stronger one stays, and the clash is noted.
pub(crate) fn merge_tables(mut weaker: Table, stronger: Table, errors: &mut Vec<ConfigError>) -> Table {
    for (key, entry) in stronger {
        match weaker.get_mut(&key) {
            Some(below) => {
                let lower = std::mem::replace(below, entry.clone());
                *below = merge_entries(&key, lower, entry, errors);
            }
            None => {
                weaker.insert(key, entry);
            }
        }
    }
    weaker
}

fn merge_entries(key: &str, weaker: Entry, stronger: Entry, errors: &mut Vec<ConfigError>) -> Entry {
    let key_origin = weaker.key_origin;
    let origin = stronger.node.origin.clone();
    match (weaker.node.value, stronger.node.value) {
        (Value::List(mut items), Value::List(more)) if stronger.laid == Laid::Behind => {
            items.extend(more);
            Entry { key_origin, laid: weaker.laid, node: Node { value: Value::List(items), origin } }
        }
        (Value::Table(below), Value::Table(above)) if stronger.laid != Laid::Instead => {
            let node = Node { value: Value::Table(merge_tables(below, above, errors)), origin: weaker.node.origin };
            Entry { key_origin, laid: weaker.laid, node }
        }
        (_, Value::Null) => Entry { key_origin, laid: Laid::Over, node: Node { value: Value::Null, origin } },
        (below, above) => {
            let taken_away = below == Value::Null || [weaker.laid, stronger.laid].contains(&Laid::Instead);
            let below = Node { value: below, origin: weaker.node.origin };
            let above = Node { value: above, origin };
            if stronger.laid != Laid::Instead && clashes(key, &below, &above, stronger.laid) {
                errors.push(clash(key, &below, &above));
            }
            Entry { key_origin, laid: if taken_away { Laid::Instead } else { Laid::Over }, node: above }
        }
    }
}

fn clashes(key: &str, below: &Node, above: &Node, laid: Laid) -> bool {
    match (&below.value, &above.value) {
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Scalar { .. }, Value::List(_)) => laid == Laid::Behind || !NAME_OR_LIST.contains(&key),
        (Value::List(_), Value::Scalar { .. }) => !NAME_OR_LIST.contains(&key),
        (below, above) => std::mem::discriminant(below) != std::mem::discriminant(above),
    }
}

fn clash(key: &str, below: &Node, above: &Node) -> ConfigError {
    let message = format!("`{key}` is {} here, laid over {}", above.what(), below.what());
    let error = ConfigError::new(&above.origin, message).related(format!("{} here", below.what()), &below.origin);
    match (&below.value, &above.value) {
        // Without the text: it may be a secret.
        (Value::List(_), Value::Scalar { .. }) => error.hint(format!("write a list: `{key}: [ITEM]`")),
        _ => error.hint("give both the same shape, or take the weaker one out"),
    }
}

/// Ends the merging: what was taken away goes, and a `key+` that met nothing to append to is the whole list.
pub(crate) fn settle(table: Table) -> Table {
    let kept = table.into_iter().filter(|(_, entry)| entry.node.value != Value::Null);
    kept.map(|(key, entry)| (key, Entry { laid: Laid::Over, node: settle_node(entry.node), ..entry })).collect()
}

fn settle_node(node: Node) -> Node {
    let value = match node.value {
        Value::Table(table) => Value::Table(settle(table)),
        Value::List(items) => Value::List(items.into_iter().map(settle_node).collect()),
        value @ (Value::Scalar { .. } | Value::Null) => value,
    };
    Node { value, ..node }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::origin::Origin;

    /// A table whose keys say what they hold, so that clashes are rare.
    fn table(depth: u32) -> BoxedStrategy<Table> {
        let scalar = || "[a-c]".prop_map(|text| (Laid::Over, Value::Scalar { text, plain: true }));
        let nothing = || Just((Laid::Over, Value::Null));
        let item = || "[a-c]".prop_map(|text| Node::text(text, Origin::built_in()));
        let laid = || prop::sample::select(vec![Laid::Over, Laid::Behind]);
        let list = || (laid(), prop::collection::vec(item(), 0..3).prop_map(Value::List));
        let keyed = |key: &'static str, value: BoxedStrategy<(Laid, Value)>| {
            value.prop_map(move |(laid, value)| {
                let node = Node { value, origin: Origin::built_in() };
                (key.to_owned(), Entry { key_origin: Origin::built_in(), laid, node })
            })
        };
        let below = match depth {
            0 => Just(Table::new()).boxed(),
            _ => table(depth - 1),
        };
        let entry = prop_oneof![
            keyed("text", scalar().boxed()),
            keyed("list", list().boxed()),
            keyed("extends", prop_oneof![scalar(), list(), nothing()].boxed()),
            keyed("list", nothing().boxed()),
            keyed("table", nothing().boxed()),
            keyed("table", below.clone().prop_map(|table| (Laid::Over, Value::Table(table))).boxed()),
            keyed("Table", below.prop_map(|table| (Laid::Over, Value::Table(table))).boxed()),
        ];
        prop::collection::vec(entry, 0..5).prop_map(Table::from_iter).boxed()
    }

    /// As a set of keys: their order is that of the layers, and does not matter here.
    fn same(a: &Table, b: &Table) -> bool {
        let within = |a: &Table, b: &Table| {
            a.iter().all(|(key, entry)| {
                b.entry(key).is_some_and(|other| match (entry.node.as_table(), other.node.as_table()) {
                    (Some(a), Some(b)) => same(a, b),
                    _ => entry == other,
                })
            })
        };
        within(a, b) && within(b, a)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// It does not matter which layers meet first, as long as none clash: of a clash the stronger value stays, so what the next
        /// layer meets depends on the order. But a clash ends the load.
        #[test]
        fn associative(a in table(2), b in table(2), c in table(2)) {
            let mut clashes = Vec::new();
            let mut merge = |weaker, stronger| merge_tables(weaker, stronger, &mut clashes);
            let ab = merge(a.clone(), b.clone());
            let left = merge(ab, c.clone());
            let bc = merge(b, c);
            let right = merge(a, bc);
            prop_assume!(clashes.is_empty());
            prop_assert!(same(&left, &right), "{left:?}\n{right:?}");
        }

        /// Nothing laid over something changes nothing, whichever of them is empty.
        #[test]
        fn an_empty_layer_is_neutral(table in table(2)) {
            let mut clashes = Vec::new();
            prop_assert_eq!(&merge_tables(table.clone(), Table::new(), &mut clashes), &table);
            prop_assert_eq!(&merge_tables(Table::new(), table.clone(), &mut clashes), &table);
            prop_assert!(clashes.is_empty());
        }
    }

    /// A `~` does its work on all that is below it, whether it meets that before or after what is laid over it: a setting that one file
    /// takes away and a stronger file writes anew must not bring back the plugin's default, which is merged last.
    #[test]
    fn what_is_taken_away_does_not_come_back() {
        let key = |value| {
            let node = Node { value, origin: Origin::built_in() };
            Table::from_iter([("key".to_owned(), Entry { key_origin: Origin::built_in(), laid: Laid::Over, node })])
        };
        let text = |name: &str| {
            let (key_origin, node) = (Origin::built_in(), Node::text(name, Origin::built_in()));
            Value::Table(Table::from_iter([(name.to_owned(), Entry { key_origin, laid: Laid::Over, node })]))
        };
        let keys = |table: &Table| table.table("key").map(|table| table.keys().map(str::to_owned).collect::<Vec<_>>());
        let (weak, nothing, strong) = (key(text("weak")), key(Value::Null), key(text("strong")));
        let merge = |weaker: &Table, stronger: &Table| merge_tables(weaker.clone(), stronger.clone(), &mut Vec::new());
        for merged in [merge(&merge(&weak, &nothing), &strong), merge(&weak, &merge(&nothing, &strong))] {
            assert_eq!(keys(&merged), Some(vec!["strong".to_owned()]));
        }
    }
}
