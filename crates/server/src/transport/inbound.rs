//! The incoming side: every other store's lanes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use protobuf::Message as _;
use raft::eraftpb;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, Semaphore};
use types::{RegionId, StoreId};

use super::frame::{self, Frame, Hello};

pub type InboundAnswer = Pin<Box<dyn Future<Output = (u8, Bytes)> + Send>>;

/// Where frames from other stores go.
pub trait Inbound: Send + Sync + 'static {
    fn raft(&self, from: StoreId, messages: Vec<(RegionId, eraftpb::Message)>);
    fn heartbeat(&self, from: StoreId, report: Bytes);
    fn order(&self, from: StoreId, region: RegionId, to: StoreId);
    /// Answers with a status byte and a body.
    fn request(self: Arc<Self>, from: StoreId, kind: u8, body: Bytes) -> InboundAnswer;
}

/// Requests of one connection that are worked on at once; more wait in the socket.
const REQUESTS_AT_ONCE_MAX: usize = 4096;
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Accepts other stores until the task is dropped.
pub async fn listen(listener: TcpListener, this: StoreId, layout_digest: u64, inbound: Arc<impl Inbound>) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let inbound = inbound.clone();
                tokio::spawn(async move {
                    if let Err(reason) = serve(stream, this, layout_digest, inbound).await {
                        tracing::warn!(%from, reason, "a store-to-store connection was refused or broke");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a store-to-store connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(
    mut stream: TcpStream,
    this: StoreId,
    layout_digest: u64,
    inbound: Arc<impl Inbound>,
) -> Result<(), String> {
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let mut bytes = BytesMut::with_capacity(64 << 10);
    let hello = tokio::time::timeout(HELLO_TIMEOUT, read_hello(&mut stream, &mut bytes))
        .await
        .map_err(|_| "no hello in time".to_owned())??;
    if hello.to != this {
        return Err(format!("meant for store {}, this is store {this}", hello.to));
    }
    if hello.layout_digest != layout_digest {
        return Err(format!("store {} is configured for another cluster layout", hello.from));
    }
    let (mut reader, mut writer) = stream.into_split();
    let (answers, mut answer_queue) = mpsc::unbounded_channel::<Frame>();
    let writing = tokio::spawn(async move {
        let mut bytes = BytesMut::new();
        while let Some(first) = answer_queue.recv().await {
            frame::encode(&first, &mut bytes);
            while bytes.len() < 1 << 20 {
                let Ok(next) = answer_queue.try_recv() else { break };
                frame::encode(&next, &mut bytes);
            }
            if writer.write_all(&bytes).await.is_err() {
                return;
            }
            bytes.clear();
        }
    });
    let result = read_frames(&mut reader, bytes, hello.from, inbound, answers).await;
    writing.abort();
    result
}

async fn read_hello(stream: &mut TcpStream, bytes: &mut BytesMut) -> Result<Hello, String> {
    loop {
        match frame::take(bytes) {
            Ok(Some(Frame::Hello(hello))) => return Ok(hello),
            Ok(Some(_)) => return Err("a frame before hello".into()),
            // Nothing but a short hello may come first: a stranger cannot make the buffer grow.
            Ok(None) if bytes.len() > 1024 => return Err("not a steelyard store".into()),
            Ok(None) => {}
            Err(error) => return Err(error.to_string()),
        }
        if stream.read_buf(bytes).await.map_err(|e| e.to_string())? == 0 {
            return Err("closed before hello".into());
        }
    }
}

async fn read_frames(
    reader: &mut (impl AsyncReadExt + Unpin),
    mut bytes: BytesMut,
    from: StoreId,
    inbound: Arc<impl Inbound>,
    answers: mpsc::UnboundedSender<Frame>,
) -> Result<(), String> {
    let at_once = Arc::new(Semaphore::new(REQUESTS_AT_ONCE_MAX));
    loop {
        while let Some(frame) = frame::take(&mut bytes).map_err(|e| e.to_string())? {
            match frame {
                Frame::Raft(messages) => inbound.raft(from, decode_messages(messages)?),
                Frame::Heartbeat(report) => inbound.heartbeat(from, report),
                Frame::Order { region, to } => inbound.order(from, region, to),
                Frame::Request { id, kind, body } => {
                    let permit = at_once.clone().acquire_owned().await.map_err(|e| e.to_string())?;
                    let answer = inbound.clone().request(from, kind, body);
                    let answers = answers.clone();
                    tokio::spawn(async move {
                        let (status, body) = answer.await;
                        let _ = answers.send(Frame::Response { id, status, body });
                        drop(permit);
                    });
                }
                Frame::Hello(_) | Frame::Response { .. } => return Err("a frame out of place".into()),
            }
        }
        match reader.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return Ok(()),
            Ok(_) => {}
        }
    }
}

fn decode_messages(messages: Vec<(RegionId, Bytes)>) -> Result<Vec<(RegionId, eraftpb::Message)>, String> {
    let decode = |(region, bytes): (RegionId, Bytes)| {
        let message = eraftpb::Message::parse_from_carllerche_bytes(&bytes).map_err(|e| e.to_string())?;
        Ok((region, message))
    };
    messages.into_iter().map(decode).collect()
}
