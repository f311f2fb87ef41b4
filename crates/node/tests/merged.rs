//! Ways in which a store is informed of regions that merged away while it was absent.

use node::merged::{concerns, conclude, MergedWatch, ASKED_MAX, ASK_AFTER, LOOK_AGAIN};
use replica::Input;
use types::{RegionDescriptor, RegionId, SlotRange};

#[test]
fn a_region_is_asked_about_when_it_has_long_had_no_leader_and_not_again_at_once() {
    let mut watch = MergedWatch::default();
    assert!(watch.is_due(0));
    assert!(watch.look([1, 2], false, 0).is_empty());
    assert!(!watch.is_due(LOOK_AGAIN - 1) && watch.is_due(LOOK_AGAIN));
    // Region 1 has a leader meanwhile.
    assert!(watch.look([2], false, LOOK_AGAIN).is_empty());
    assert!(watch.look([1, 2], false, ASK_AFTER - 1).is_empty());
    assert!(watch.look([1, 2], true, ASK_AFTER).is_empty(), "a question is pending");
    assert_eq!(watch.look([1, 2], false, ASK_AFTER), [2]);
    assert!(watch.look([1, 2], false, 2 * ASK_AFTER - 1).is_empty());
    assert_eq!(watch.look([1, 2], false, 2 * ASK_AFTER), [1, 2]);
}

#[test]
fn a_question_has_a_bound() {
    let mut watch = MergedWatch::default();
    watch.look(0..1000, false, 0);
    assert_eq!(watch.look(0..1000, false, ASK_AFTER).len(), ASKED_MAX);
}

#[test]
fn nothing_follows_for_a_region_that_the_answer_does_not_name() {
    let heir = RegionDescriptor::founded(9, Some(SlotRange::ALL), &[1]);
    let answer = vec![(2, vec![heir.clone()]), (7, vec![heir.clone()])];
    let told = conclude(&[2, 3], answer);
    assert!(matches!(&told[..], [Input::MergedAway { region: 2, heirs }] if *heirs == [heir]));
    assert!(conclude(&[2, 3], Vec::new()).is_empty());
}

#[test]
fn groups_hear_of_what_took_their_regions_over_and_of_removals() {
    let of = |id| RegionDescriptor::founded(id, Some(SlotRange::ALL), &[1, 2, 3]);
    let local = |here: &'static [RegionId]| move |id| here.contains(&id).then(|| of(id));
    let mut heard = RegionDescriptor { absorbed: vec![4, 5], ..of(9) };
    assert!(concerns(&heard, 1, local(&[5])));
    assert!(!concerns(&heard, 1, local(&[9, 6])), "its own peer is still a member");
    heard.peers.retain(|peer| peer.store != 3);
    heard.epoch.conf_version += 1;
    assert!(concerns(&heard, 3, local(&[9])), "the peer was removed");
    assert!(!concerns(&heard, 2, local(&[9])) && !concerns(&heard, 3, local(&[])));
}
