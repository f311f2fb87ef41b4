//! Bearer tokens of the admin endpoint.
//!
//! A token has 256 random bits. The store that is asked for one draws it and shows it once; the
//! cluster has its digest only. A token stands for a user, whose rules decide what it may do.

use std::sync::Arc;

use cluster::admin::{TokenReply, TokenRequest, TokenRow, TokensQuery};
use cluster::{MetaCommand, TokenRecord};
use serde_json::Value;

use super::ask::{self, Ask, NotAnswered};
use super::operations::{Change, Served};
use super::proposer::Proposer;
use crate::accounts::{bytes_of, text_of};
use crate::admin_error::{refuse, AdminError};
use crate::members::AgreedMembers;
use crate::secrets::shown;
use crate::store::Store;

/// The beginning of a token, by which it can be found in text that should have none.
const PREFIX: &str = "steelyard_";
const TOKEN_BYTES: usize = 32;

/// Draws a token.
fn draw() -> Result<String, AdminError> {
    let mut random = [0; TOKEN_BYTES];
    getrandom::fill(&mut random).map_err(|_| refuse(500, "the system has no random numbers"))?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{PREFIX}{digits}"))
}

/// Returns the record of a token. All tokens are compared, and the time does not tell how much of
/// one is right.
pub fn find<'a>(tokens: impl IntoIterator<Item = &'a TokenRecord>, token: &[u8]) -> Option<&'a TokenRecord> {
    let given = acl::hash(token);
    tokens.into_iter().fold(None, |found, known| match acl::same_digest(&known.digest, &given) {
        true => Some(known),
        false => found,
    })
}

impl Served for TokensQuery {
    async fn serve(self, (): (), store: &Arc<Store>, _: Change<'_>) -> Result<Vec<TokenRow>, AdminError> {
        let members = store.membership.members();
        let row = |(name, token): (&String, &TokenRecord)| TokenRow {
            name: name.clone(),
            user: bytes_of(&token.user).map_or_else(|| token.user.clone(), |name| shown(&name)),
            created_unix_ms: token.created_ms,
            expires_unix_ms: token.expires_ms,
        };
        Ok(members.agreed.tokens.iter().map(row).collect())
    }
}

impl Served for TokenRequest {
    const IS_OWN: bool = false;

    async fn serve(self, (): (), store: &Arc<Store>, change: Change<'_>) -> Result<TokenReply, AdminError> {
        ask::need_third_version(store, "tokens").map_err(NotAnswered::into_error)?;
        let (name, token) = match &self {
            TokenRequest::Create { name, .. } => (name.clone(), Some(draw()?)),
            TokenRequest::Revoke { name } => (name.clone(), None),
        };
        let digest = token.as_ref().map_or(String::new(), |token| acl::hash(token.as_bytes()));
        let question = Ask::ChangeToken { change: self, digest };
        let members: AgreedMembers = ask::read(ask::ask_recorded(store, change, question).await?)?;
        store.membership.take_members(members);
        Ok(TokenReply { name, token })
    }
}

/// Changes a token as the leader of the meta region. Returns the list of stores with the tokens.
pub async fn answer(
    store: &Store,
    proposer: &Proposer,
    change: TokenRequest,
    digest: String,
) -> Result<Value, NotAnswered> {
    let command = match change {
        TokenRequest::Create { name, user, seconds } => {
            let ttl_ms = seconds.map(|seconds| seconds.saturating_mul(1000));
            MetaCommand::CreateToken { name, user: text_of(user.as_bytes()), digest, ttl_ms }
        }
        TokenRequest::Revoke { name } => MetaCommand::RevokeToken { name },
    };
    proposer.propose(store, command).await?;
    // The command is applied here, so the list has its effect.
    Ok(serde_json::to_value(store.cluster.members_after(0).unwrap_or_default()).expect("plain data"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_all_of_it_and_by_nothing_else() {
        let token = draw().unwrap();
        assert_eq!(token.len(), PREFIX.len() + 2 * TOKEN_BYTES);
        let record = |token: &str| TokenRecord {
            user: "ann".into(),
            since: 1,
            digest: acl::hash(token.as_bytes()),
            created_ms: 1,
            expires_ms: None,
        };
        let known = [record(&draw().unwrap()), record(&token), record(&draw().unwrap())];
        assert_eq!(find(&known, token.as_bytes()), Some(&known[1]));
        let digest = known[1].digest.clone();
        for wrong in ["", &token[1..], &token[..token.len() - 1], &(token.clone() + "0"), &digest] {
            assert_eq!(find(&known, wrong.as_bytes()), None, "{wrong}");
        }
    }
}
