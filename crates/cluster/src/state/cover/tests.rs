use types::{RegionChange, SlotRange};

use super::*;

fn known() -> Regions {
    let user = SlotRange::split_evenly(4).into_iter().zip(1..);
    let users = user.map(|(slots, id)| RegionDescriptor::founded(id, Some(slots), &[0, 1, 2]));
    let meta = RegionDescriptor::founded(META_REGION, None, &[0, 1, 2]);
    [meta].into_iter().chain(users).map(|region| (region.id, region)).collect()
}

fn cut(region: &RegionDescriptor, at: u16, new_region: RegionId) -> (RegionDescriptor, RegionDescriptor) {
    let changed = region.after(&RegionChange::Split { at, new_region }).unwrap();
    (changed.region, changed.split_off.unwrap())
}

fn joined(target: &RegionDescriptor, source: &RegionDescriptor) -> RegionDescriptor {
    let change = RegionChange::CommitMerge { source: Box::new(source.clone()), source_index: 9 };
    target.after(&change).unwrap().region
}

fn ids(fit: &Fit<'_>) -> (Vec<RegionId>, Vec<RegionId>, Vec<RegionId>) {
    (fit.taken.iter().map(|region| region.id).collect(), fit.gone.clone(), fit.ignored.clone())
}

fn fit_of(reports: &[&RegionDescriptor]) -> (Vec<RegionId>, Vec<RegionId>, Vec<RegionId>) {
    ids(&fit(&known(), reports.iter().copied(), |_| true))
}

#[test]
fn half_a_split_waits_for_the_other_half() {
    let (left, right) = cut(&known()[&2], 5000, 5);
    assert_eq!(fit_of(&[&left]), (vec![], vec![], vec![2]));
    assert_eq!(fit_of(&[&right]), (vec![], vec![], vec![5]));
    assert_eq!(fit_of(&[&right, &left]), (vec![2, 5], vec![], vec![]));
}

#[test]
fn a_merge_is_told_by_one_and_ends_the_other() {
    let known = known();
    let merged = joined(&known[&2], &known[&3]);
    assert_eq!(fit_of(&[&merged]), (vec![2], vec![3], vec![]));
}

#[test]
fn a_long_story_fits_by_its_end() {
    let known = known();
    // Region 2 is cut in three, and its parts go to both neighbours.
    let (left, rest) = cut(&known[&2], 5000, 5);
    let (middle, right) = cut(&rest, 6000, 6);
    let one = joined(&known[&1], &left);
    let three = joined(&known[&3], &right);
    assert_eq!(fit_of(&[&three, &middle, &one]), (vec![1, 3, 5], vec![2], vec![]));
    // The intermediate reports are outdated or wait.
    assert_eq!(fit_of(&[&three, &middle, &one, &left]), (vec![1, 3, 5], vec![2], vec![2]));
    assert_eq!(fit_of(&[&three, &one]), (vec![], vec![], vec![1, 3]));
    assert_eq!(fit_of(&[&left, &rest]), (vec![2, 5], vec![], vec![]));
}

#[test]
fn what_does_not_fit_holds_nothing_else_up() {
    let known = known();
    let (left, _) = cut(&known[&2], 5000, 5);
    let merged = joined(&known[&3], &known[&4]);
    let mut grown = known[&1].clone();
    grown.epoch.conf_version += 1;
    let mut meta = known[&META_REGION].clone();
    meta.epoch.conf_version += 1;
    assert_eq!(fit_of(&[&left, &merged, &grown, &meta]), (vec![0, 1, 3], vec![4], vec![2]));
}

#[test]
fn old_news_and_the_implausible_are_not_taken() {
    let known = known();
    assert_eq!(fit_of(&[&known[&1]]), (vec![], vec![], vec![]));
    let mut slots_of_meta = known[&META_REGION].clone();
    slots_of_meta.epoch.version += 1;
    slots_of_meta.slots = known[&1].slots;
    assert_eq!(fit_of(&[&slots_of_meta]), (vec![], vec![], vec![META_REGION]));
    // A region cannot have taken over slots of the same version.
    let mut thief = known[&1].clone();
    thief.id = 9;
    assert_eq!(fit_of(&[&thief]), (vec![], vec![], vec![9]));
    let mut grown = known[&1].clone();
    grown.epoch.conf_version += 1;
    assert_eq!(ids(&fit(&known, [&grown], |_| false)), (vec![], vec![], vec![1]));
}
