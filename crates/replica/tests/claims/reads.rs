//! Claims about reads that ask followers.

use super::*;

#[test]
fn reads_of_a_leader_that_is_deposed_or_cut_off_are_refused_and_never_left_hanging() {
    let mut trio = Trio::led();
    trio.step(0, Input::ReadIndex { region: REGION, token: 1, asked: Asked::All });
    trio.settle();
    assert!(trio.saw(0, |action| *action == Action::ReadReady { region: REGION, token: 1 }));
    trio.step(0, Input::ReadIndex { region: REGION, token: 2, asked: Asked::All });
    trio.clear();
    let term = trio.last_and_term(0).1;
    trio.deliver(1, 0, message(1, 0, term + 1, MessageType::MsgAppendResponse));
    assert_eq!(trio.refusal(0, 2), Some(Refusal::NotLeader { leader: None }));
    trio.step(0, Input::ReadIndex { region: REGION, token: 3, asked: Asked::All });
    assert_eq!(trio.refusal(0, 3), Some(Refusal::NotLeader { leader: None }));
    trio.step(0, Input::ReadIndex { region: 99, token: 4, asked: Asked::All });
    assert_eq!(trio.refusal(0, 4), Some(Refusal::NotLeader { leader: None }));
}

/// Returns the stores that the leader's heartbeats with a question go to.
fn asked(trio: &Trio) -> Vec<StoreId> {
    let asks = |message: &Message| kind(message) == MessageType::MsgHeartbeat && !message.context.is_empty();
    trio.wire.iter().filter(|(_, _, message)| asks(message)).map(|(_, to, _)| *to).collect()
}

#[test]
fn an_epoch_check_asks_one_of_two_followers_and_passes_over_one_that_is_silent() {
    let mut trio = Trio::led();
    let check = |trio: &mut Trio, token| {
        trio.step(0, Input::ReadIndex { region: REGION, token, asked: Asked::Majority });
        asked(trio)
    };
    let is_ready =
        |trio: &Trio, token| trio.saw(0, |action| *action == Action::ReadReady { region: REGION, token });
    assert_eq!(check(&mut trio, 1), [1]);
    trio.settle();
    assert!(is_ready(&trio, 1));

    assert_eq!(check(&mut trio, 2), [1]);
    trio.settle_only(|to, _| to != 1);
    assert!(!is_ready(&trio, 2), "nobody else was asked");
    // Heartbeats repeat the question to all.
    for _ in 0..2 {
        trio.now += TICK;
        trio.step(0, Input::Tick);
        trio.settle_only(|to, _| to != 1);
    }
    assert!(is_ready(&trio, 2));
    assert_eq!(check(&mut trio, 3), [2]);
    trio.settle_only(|to, _| to != 1);
    assert!(is_ready(&trio, 3), "the silent follower is passed over");

    trio.step(0, Input::ReadIndex { region: REGION, token: 4, asked: Asked::All });
    assert_eq!(asked(&trio), [1, 2]);
}

#[test]
fn a_read_that_waits_for_the_terms_first_commit_is_refused_in_time() {
    let mut trio = Trio::new(3);
    while trio.role(0) != Role::Leader {
        trio.now += TICK;
        trio.step(0, Input::Tick);
        // Heartbeats are delivered, entries are not.
        trio.settle_only(|_, message| kind(message) != MessageType::MsgAppend);
    }
    trio.step(0, Input::ReadIndex { region: REGION, token: 1, asked: Asked::All });
    for _ in 0..22 {
        trio.tick(0, 1);
        trio.settle_only(|_, message| kind(message) != MessageType::MsgAppend);
    }
    assert_eq!((trio.role(0), trio.refusal(0, 1)), (Role::Leader, Some(Refusal::Unproven)));
}
