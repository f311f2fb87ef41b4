//! `ctl stores --flash`: the use of RAM and flash of every store.

use std::sync::Arc;

use cluster::admin::{FlashQuery, FlashRow};
use futures::future::join_all;

use super::ask::{ask_store, read, Ask};
use super::operations::{Change, Served};
use crate::admin_error::AdminError;
use crate::store::Store;

impl Served for FlashQuery {
    /// Asks every store that is up. A store that does not answer, or whose program does not know
    /// the question, is left out.
    async fn serve(self, (): (), store: &Arc<Store>, _: Change<'_>) -> Result<Vec<FlashRow>, AdminError> {
        let members = store.membership.members().list.clone();
        let up = members.iter().filter(|member| store.cluster.is_heard(member.id));
        let asked = up.map(|member| async {
            let answer = ask_store(store, member.id, Ask::Flash).await.ok()?;
            read::<FlashRow>(answer).ok()
        });
        let mut rows: Vec<FlashRow> = join_all(asked).await.into_iter().flatten().collect();
        rows.sort_by_key(|row| row.store);
        Ok(rows)
    }
}
