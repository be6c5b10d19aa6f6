//! Databases beside the services, and the queries of scripts: what isotope has not.

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{check_name, mapping, refuse_rest};
use crate::mesh::database::ROWS_MAX;

/// Databases of a graph: each has a network, a server and a sidecar.
const DATABASES_MAX: usize = 4;

/// Statements that fill a database.
const STATEMENTS_MAX: usize = 64;

/// The longest statement.
const SQL_BYTES_MAX: usize = 16 << 10;

/// A server of PostgreSQL with a sidecar.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::mesh) struct Database {
    /// Its name, which is that of its Service too.
    pub name: String,
    /// The statements that fill it, one after the other.
    pub setup: Vec<String>,
}

/// A query to a database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Query {
    /// The database that is asked.
    pub database: String,
    /// The statement.
    pub sql: String,
    /// The rows of its answer; any other number is an error.
    pub rows: u64,
}

impl Database {
    /// Reads the databases of a file.
    pub(super) fn read_all(value: Option<Value>) -> anyhow::Result<Vec<Database>> {
        let databases = match value {
            None => return Ok(Vec::new()),
            Some(Value::Array(databases)) => databases,
            Some(other) => bail!("databases: it is {other}; write a list"),
        };
        let count = databases.len();
        ensure!(
            count <= DATABASES_MAX,
            "databases: {count}, over {DATABASES_MAX}; take fewer"
        );
        let databases = databases.into_iter().enumerate();
        databases
            .map(|(at, value)| Database::read(at, value))
            .collect()
    }

    fn read(at: usize, value: Value) -> anyhow::Result<Database> {
        let mut fields = mapping(&format!("databases[{at}]"), "", value)?;
        let Some(Value::String(name)) = fields.remove("name") else {
            bail!("databases[{at}]: name is missing; write one");
        };
        let who = format!("database {name}");
        check_name(&who, &name)?;
        let setup = match fields.remove("setup") {
            None => Vec::new(),
            Some(Value::Array(setup)) => setup,
            Some(other) => bail!("{who}: setup is {other}; write a list of statements"),
        };
        refuse_rest(&who, "", &fields)?;
        let count = setup.len();
        ensure!(
            count <= STATEMENTS_MAX,
            "{who}: setup has {count} statements, over {STATEMENTS_MAX}; shorten it"
        );
        let setup = setup.into_iter().enumerate();
        let setup = setup.map(|(at, it)| statement(&who, &format!("setup[{at}]"), Some(it)));
        let setup = setup.collect::<anyhow::Result<_>>()?;
        Ok(Database { name, setup })
    }
}

impl Query {
    /// Reads the query of a command.
    pub(super) fn read(who: &str, place: &str, value: Value) -> anyhow::Result<Query> {
        let place = format!("{place}.query");
        let mut fields: Map<String, Value> = mapping(who, &place, value)?;
        let Some(Value::String(database)) = fields.remove("database") else {
            bail!("{who}: {place}.database is missing; name the database that is asked");
        };
        let sql = statement(who, &format!("{place}.sql"), fields.remove("sql"))?;
        let rows = match fields.remove("rows").map(|rows| (rows.as_u64(), rows)) {
            Some((Some(rows), _)) if rows <= ROWS_MAX => rows,
            Some((_, other)) => {
                bail!("{who}: {place}.rows is {other}; write 0 to {ROWS_MAX}, as in the data")
            }
            None => bail!("{who}: {place}.rows is missing; write how many the answer has"),
        };
        refuse_rest(who, &place, &fields)?;
        Ok(Query {
            database,
            sql,
            rows,
        })
    }
}

fn statement(who: &str, place: &str, value: Option<Value>) -> anyhow::Result<String> {
    let Some(Value::String(sql)) = value else {
        bail!("{who}: {place} is no text; write a statement");
    };
    ensure!(
        sql.len() <= SQL_BYTES_MAX && !sql.contains('\0'),
        "{who}: {place} is longer than {SQL_BYTES_MAX} bytes, or has a byte of zero; shorten it"
    );
    Ok(sql)
}
