//! Many rows in one statement. The rows are cut into a few fixed sizes, so that
//! few statements exist and each stays prepared.

use sqlx::any::{AnyArguments, AnyRow};
use sqlx::{AnyConnection, Arguments, AssertSqlSafe, Error};

use super::dialect::Dialect;

/// Rows per statement, largest first; the last must be 1.
const SIZES: [usize; 5] = [512, 128, 32, 8, 1];

/// A statement with its rows between `before` and `after`.
pub(super) struct Bulk {
    pub before: &'static str,
    pub rows: Rows,
    pub after: &'static str,
}

/// How the rows are written into a statement.
pub(super) enum Rows {
    /// `($1,$2),($3,$4)`, each with so many columns.
    Values(usize),
    /// `(kind = $1 AND id = $2) OR (kind = $3 AND id = $4)`. SQLite takes the index for this,
    /// and reads the whole table for `(kind, id) IN (VALUES …)`.
    Keys,
}

/// The values of one statement, in the order of its columns.
#[derive(Default)]
pub(super) struct Values {
    arguments: AnyArguments,
    error: Option<Error>,
}

impl Values {
    pub fn text(&mut self, text: &str) -> &mut Self {
        let added = self.arguments.add(text);
        self.note(added)
    }

    pub fn text_or_null(&mut self, text: Option<&str>) -> &mut Self {
        let added = self.arguments.add(text);
        self.note(added)
    }

    pub fn number(&mut self, number: i64) -> &mut Self {
        let added = self.arguments.add(number);
        self.note(added)
    }

    fn note(&mut self, added: Result<(), sqlx::error::BoxDynError>) -> &mut Self {
        if let Err(error) = added {
            self.error = Some(Error::Encode(error));
        }
        self
    }

    fn finish(self) -> Result<AnyArguments, Error> {
        self.error.map_or(Ok(self.arguments), Err)
    }
}

impl Bulk {
    pub async fn execute<T>(
        &self,
        connection: &mut AnyConnection,
        rows: &[T],
        bind: impl Fn(&mut Values, &T) + Send,
    ) -> Result<(), Error>
    where
        T: Sync,
    {
        let dialect = Dialect::of(connection);
        for chunk in chunks(rows) {
            let (sql, arguments) = self.statement(dialect, chunk, &bind)?;
            sqlx::query_with(AssertSqlSafe(sql), arguments).execute(&mut *connection).await?;
        }
        Ok(())
    }

    pub async fn fetch<T>(
        &self,
        connection: &mut AnyConnection,
        rows: &[T],
        bind: impl Fn(&mut Values, &T) + Send,
    ) -> Result<Vec<AnyRow>, Error>
    where
        T: Sync,
    {
        let mut found = Vec::new();
        let dialect = Dialect::of(connection);
        for chunk in chunks(rows) {
            let (sql, arguments) = self.statement(dialect, chunk, &bind)?;
            found.extend(sqlx::query_with(AssertSqlSafe(sql), arguments).fetch_all(&mut *connection).await?);
        }
        Ok(found)
    }

    fn statement<T>(
        &self,
        dialect: Dialect,
        rows: &[T],
        bind: &impl Fn(&mut Values, &T),
    ) -> Result<(String, AnyArguments), Error> {
        let mut values = Values::default();
        for row in rows {
            bind(&mut values, row);
        }
        Ok((self.sql(dialect, rows.len()), values.finish()?))
    }

    /// The text has only our own constants and placeholders in it.
    fn sql(&self, dialect: Dialect, count: usize) -> String {
        let mut sql = format!("{} ", self.before);
        let mut number = 0;
        let mut place = |sql: &mut String| {
            number += 1;
            match dialect {
                // A numbered one would be looked up by its name for every value, in a list of all of them.
                Dialect::Sqlite => sql.push('?'),
                Dialect::Postgres => sql.push_str(&format!("${number}")),
            }
        };
        for row in 0..count {
            match self.rows {
                Rows::Values(columns) => {
                    sql.push_str(if row == 0 { "(" } else { ",(" });
                    for column in 0..columns {
                        if column > 0 {
                            sql.push(',');
                        }
                        place(&mut sql);
                    }
                }
                Rows::Keys => {
                    sql.push_str(if row == 0 { "(kind = " } else { " OR (kind = " });
                    place(&mut sql);
                    sql.push_str(" AND id = ");
                    place(&mut sql);
                }
            }
            sql.push(')');
        }
        sql.push(' ');
        sql.push_str(self.after);
        sql
    }
}

fn chunks<T>(mut rows: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let size = SIZES.into_iter().find(|size| *size <= rows.len())?;
        let (chunk, rest) = rows.split_at(size);
        rows = rest;
        Some(chunk)
    })
}
