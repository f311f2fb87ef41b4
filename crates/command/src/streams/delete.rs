//! `XDEL`.

use bytes::Bytes;
use resp::Reply;
use storage::StreamId;

use super::entries::{delete_first, find_first};
use super::{count_reply, id};
use crate::exec::{CommandResult, Exec};

pub(crate) fn xdel(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let key = exec.key(&args[1]);
    let Some(found) = exec.find_stream(&key)? else { return Ok(Reply::Int(0)) };
    let ids = args[2..].iter().map(|arg| id::strict(arg, 0)).collect::<CommandResult<Vec<StreamId>>>()?;
    let mut stream = found.stream;
    let mut deleted = 0;
    let mut rest = &ids[..];
    while !rest.is_empty() {
        let (looked_up, gone) = delete_first(exec, &key, &mut stream, rest)?;
        rest = &rest[looked_up..];
        for id in gone {
            stream.max_deleted_id = stream.max_deleted_id.max(id);
            deleted += 1;
        }
    }
    if deleted > 0 {
        if ids.contains(&stream.first_id) {
            find_first(exec, &key, &mut stream)?;
        }
        exec.put_stream(&key, Some(&found), stream);
        exec.tell(&key, "xdel");
    }
    Ok(count_reply(deleted))
}
