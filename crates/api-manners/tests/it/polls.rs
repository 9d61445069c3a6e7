//! Waits: how few calls they take, and how they end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api_manners::{
    CallError, Caller, Failure, Manners, Operation, Pace, Place, Poller, Service, Verdict, Wait, WaitError,
};
use insta::assert_snapshot;
use proptest::prelude::*;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::place;

type Images = Poller<String, &'static str>;

/// A cloud whose images become available at a moment each, and what it was asked.
#[derive(Default)]
struct Cloud {
    ready: Mutex<BTreeMap<String, Instant>>,
    broken: Mutex<Option<Failure>>,
    asked: Mutex<Vec<(Instant, Vec<String>)>>,
}

impl Cloud {
    /// Returns a poller of images of one place of this cloud.
    fn poller(self: &Arc<Self>, place: Place) -> Images {
        self.poller_by(Manners::default().caller(place))
    }

    fn poller_by(self: &Arc<Self>, caller: Caller) -> Images {
        let (cloud, place) = (Arc::clone(self), caller.place().clone());
        Poller::new("image", place, Pace::default(), move |ids| {
            let (cloud, caller) = (Arc::clone(&cloud), caller.clone());
            async move {
                let (cancel, deadline) = (CancellationToken::new(), Instant::now() + Duration::from_secs(1));
                caller.call(&Operation::reads("DescribeImages"), deadline, &cancel, || cloud.describe(&ids)).await
            }
        })
    }

    /// Makes an image that is available after so long.
    fn image(&self, id: &str, after: Duration) -> String {
        self.ready.lock().unwrap().insert(id.to_owned(), Instant::now() + after);
        id.to_owned()
    }

    async fn describe(&self, ids: &[String]) -> Result<Vec<(String, &'static str)>, Failure> {
        self.asked.lock().unwrap().push((Instant::now(), ids.to_vec()));
        if let Some(failure) = self.broken.lock().unwrap().clone() {
            return Err(failure);
        }
        let (ready, now) = (self.ready.lock().unwrap(), Instant::now());
        let state = |id: &String| Some((id.clone(), if *ready.get(id)? <= now { "available" } else { "pending" }));
        Ok(ids.iter().filter_map(state).collect())
    }

    fn calls(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    fn breaks(&self, failure: Option<Failure>) {
        *self.broken.lock().unwrap() = failure;
    }
}

fn here() -> Place {
    place("123", "eu-west-1")
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn available(state: Option<&&'static str>) -> Verdict<()> {
    match state {
        Some(&"available") => Verdict::Done(()),
        Some(other) => Verdict::NotYet(format!("it is {other}")),
        None => Verdict::NotYet("it is not there yet".into()),
    }
}

fn limit(time: Duration) -> Wait {
    Wait::until(Instant::now() + time)
}

async fn wait(poller: &Images, id: &str, wait: Wait) -> Result<(), WaitError> {
    poller.wait(&id.to_owned(), wait, &CancellationToken::new(), available).await
}

/// Waits for images in tasks of their own.
fn wait_for_all(poller: &Images, ids: impl IntoIterator<Item = String>, tasks: &mut JoinSet<Result<(), WaitError>>) {
    for id in ids {
        let poller = poller.clone();
        tasks.spawn(async move { wait(&poller, &id, limit(seconds(7200))).await });
    }
}

#[tokio::test(start_paused = true)]
async fn the_looks_begin_soon_and_become_rarer() {
    let (cloud, begun) = (Arc::<Cloud>::default(), Instant::now());
    let id = cloud.image("ami-1", seconds(100));
    wait(&cloud.poller(here()), &id, limit(seconds(600))).await.unwrap();
    let times: Vec<_> = cloud.asked.lock().unwrap().iter().map(|(at, _)| (*at - begun).as_millis()).collect();
    assert_eq!(times, [100, 2100, 5100, 9600, 16_350, 26_475, 41_475, 56_475, 71_475, 86_475, 101_475]);
}

#[tokio::test(start_paused = true)]
async fn two_hundred_waits_take_as_many_calls_as_one() {
    let calls = async |waiters: usize| {
        let (cloud, mut tasks) = (Arc::<Cloud>::default(), JoinSet::new());
        let ids: Vec<_> = (0..waiters).map(|number| cloud.image(&format!("ami-{number}"), seconds(100))).collect();
        wait_for_all(&cloud.poller(here()), ids, &mut tasks);
        assert!(tasks.join_all().await.iter().all(Result::is_ok));
        cloud.calls()
    };
    assert_eq!(calls(1).await, calls(200).await);
}

#[tokio::test(start_paused = true)]
async fn a_call_asks_for_as_many_as_it_may_and_no_more() {
    let (cloud, mut tasks) = (Arc::<Cloud>::default(), JoinSet::new());
    let ids: Vec<_> = (0..500).map(|number| cloud.image(&format!("ami-{number}"), seconds(0))).collect();
    wait_for_all(&cloud.poller(here()), ids, &mut tasks);
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    let mut sizes: Vec<_> = cloud.asked.lock().unwrap().iter().map(|(_, ids)| ids.len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [100, 200, 200]);
}

#[tokio::test(start_paused = true)]
async fn copies_to_thirty_regions_in_three_accounts_take_the_same_few_calls_in_each() {
    let calls_in_each = async |copies: usize| {
        let (manners, mut tasks, mut clouds) = (Manners::default(), JoinSet::new(), Vec::new());
        for account in 0..3 {
            for region in 0..30 {
                let cloud = Arc::<Cloud>::default();
                let caller = manners.caller(place(&account.to_string(), &format!("region-{region}")));
                let ids: Vec<_> =
                    (0..copies).map(|number| cloud.image(&format!("ami-{number}"), seconds(300))).collect();
                wait_for_all(&cloud.poller_by(caller), ids, &mut tasks);
                clouds.push(cloud);
            }
        }
        assert!(tasks.join_all().await.iter().all(Result::is_ok));
        clouds.iter().map(|cloud| cloud.calls()).collect::<BTreeSet<_>>()
    };
    let few = calls_in_each(1).await;
    assert_eq!(few.len(), 1, "regions differ: {few:?}");
    assert_eq!(few, calls_in_each(10).await);
}

#[tokio::test(start_paused = true)]
async fn two_who_wait_for_the_same_ask_for_it_once() {
    let (cloud, mut tasks) = (Arc::<Cloud>::default(), JoinSet::new());
    let id = cloud.image("ami-1", seconds(5));
    wait_for_all(&cloud.poller(here()), [id.clone(), id.clone()], &mut tasks);
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    assert!(cloud.asked.lock().unwrap().iter().all(|(_, ids)| *ids == [id.clone()]));
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_late_is_looked_for_soon_and_at_most_once_a_second() {
    let (cloud, mut tasks) = (Arc::<Cloud>::default(), JoinSet::new());
    let poller = cloud.poller(here());
    wait_for_all(&poller, [cloud.image("slow", seconds(1000))], &mut tasks);
    tokio::time::sleep(seconds(300)).await;
    let (before, begun) = (cloud.calls(), Instant::now());
    for number in 0..100 {
        wait_for_all(&poller, [cloud.image(&format!("ami-{number}"), seconds(0))], &mut tasks);
        tokio::time::sleep(Duration::from_millis(99)).await;
    }
    for _ in 0..100 {
        tasks.join_next().await.unwrap().unwrap().unwrap();
    }
    assert!(begun.elapsed() <= seconds(12), "{:?}", begun.elapsed());
    let calls = cloud.calls() - before;
    assert!((9..=12).contains(&calls), "{calls}");
    let asked = cloud.asked.lock().unwrap();
    assert!(asked.windows(2).all(|pair| pair[1].0 - pair[0].0 >= seconds(1)));
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_when_nobody_waits() {
    let cloud = Arc::<Cloud>::default();
    let poller = cloud.poller(here());
    for id in ["ami-1", "ami-2"] {
        let id = cloud.image(id, seconds(3));
        wait(&poller, &id, limit(seconds(60))).await.unwrap();
        let calls = cloud.calls();
        tokio::time::sleep(seconds(3600)).await;
        assert_eq!(cloud.calls(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_in_passing_ends_no_wait() {
    let cloud = Arc::<Cloud>::default();
    let id = cloud.image("ami-1", seconds(10));
    let unwell = Failure::answered(Service::Ec2, Some("Unavailable"), 503, "The service is unavailable");
    cloud.breaks(Some(unwell));
    let poller = cloud.poller(here());
    let (outcome, ()) = tokio::join!(wait(&poller, &id, limit(seconds(3600))), async {
        tokio::time::sleep(seconds(1200)).await;
        cloud.breaks(None);
    });
    outcome.unwrap();
}

#[tokio::test(start_paused = true)]
async fn credentials_that_run_out_end_all_waits_at_once() {
    let (cloud, mut tasks, begun) = (Arc::<Cloud>::default(), JoinSet::new(), Instant::now());
    let ids: Vec<_> = (0..5).map(|number| cloud.image(&format!("ami-{number}"), seconds(3000))).collect();
    wait_for_all(&cloud.poller(here()), ids, &mut tasks);
    tokio::time::sleep(seconds(60)).await;
    cloud.breaks(Some(Failure::answered(Service::Ec2, Some("RequestExpired"), 400, "Request has expired.")));
    for outcome in tasks.join_all().await {
        assert!(matches!(outcome, Err(WaitError::Blind { source, .. }) if source.code() == Some("RequestExpired")));
    }
    assert!(begun.elapsed() < seconds(80));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_one_wait_and_tells_what_was_seen() {
    let (cloud, mut tasks) = (Arc::<Cloud>::default(), JoinSet::new());
    let poller = cloud.poller(here());
    wait_for_all(&poller, [cloud.image("other", seconds(900))], &mut tasks);
    let id = cloud.image("ami-1", seconds(9000));
    let error = wait(&poller, &id, limit(seconds(600))).await.unwrap_err();
    assert_snapshot!(error, @"image `ami-1` in region `eu-west-1` of account 123 was not ready after 600s: it is pending");
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_tells_when_looking_did_not_work() {
    let cloud = Arc::<Cloud>::default();
    let (id, poller) = (cloud.image("ami-1", seconds(9000)), cloud.poller(here()));
    let (error, ()) = tokio::join!(wait(&poller, &id, limit(seconds(60))), async {
        tokio::time::sleep(seconds(10)).await;
        cloud.breaks(Some(Failure::answered(Service::Ec2, Some("SlowDown"), 503, "")));
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("it is pending, and then DescribeImages in region `eu-west-1`"), "{error}");
    assert!(error.ends_with("SlowDown"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_one_wait_at_once() {
    let (cloud, mut tasks, cancel) = (Arc::<Cloud>::default(), JoinSet::new(), CancellationToken::new());
    let poller = cloud.poller(here());
    wait_for_all(&poller, [cloud.image("other", seconds(100))], &mut tasks);
    let (id, begun) = (cloud.image("ami-1", seconds(9000)), Instant::now());
    let (outcome, ()) = tokio::join!(poller.wait(&id, limit(seconds(600)), &cancel, available), async {
        tokio::time::sleep(seconds(33)).await;
        cancel.cancel();
    });
    assert!(matches!(outcome, Err(WaitError::Cancelled { .. })));
    assert_eq!(begun.elapsed(), seconds(33));
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    assert_eq!(cloud.asked.lock().unwrap().last().unwrap().1, ["other"], "it is asked for no more");
}

#[tokio::test(start_paused = true)]
async fn a_state_that_is_the_end_tells_its_reason() {
    let cloud = Arc::<Cloud>::default();
    let id = cloud.image("ami-1", seconds(0));
    let failed = |_: Option<&&'static str>| Verdict::<()>::Failed("Client.InternalError: bad key".into());
    let poller = cloud.poller(here());
    let error = poller.wait(&id, limit(seconds(600)), &CancellationToken::new(), failed).await.unwrap_err();
    assert_snapshot!(error, @"image `ami-1` in region `eu-west-1` of account 123 failed: Client.InternalError: bad key");
}

#[tokio::test(start_paused = true)]
async fn what_is_never_there_is_given_up_and_does_not_hold_the_others_up() {
    let (cloud, mut tasks, begun) = (Arc::<Cloud>::default(), JoinSet::new(), Instant::now());
    let poller = cloud.poller(here());
    let id = cloud.image("ami-1", seconds(20));
    wait_for_all(&poller, ["unknown".into(), id], &mut tasks);
    tasks.join_next().await.unwrap().unwrap().unwrap();
    assert!(begun.elapsed() < seconds(30));
    let error = tasks.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, WaitError::NeverThere { .. }), "{error}");
    assert!(begun.elapsed() < seconds(200), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_was_there_once_may_be_missing_from_a_later_answer() {
    let cloud = Arc::<Cloud>::default();
    let (id, poller) = (cloud.image("ami-1", seconds(9000)), cloud.poller(here()));
    let (outcome, ()) = tokio::join!(wait(&poller, &id, limit(seconds(3000))), async {
        tokio::time::sleep(seconds(60)).await;
        cloud.ready.lock().unwrap().clear();
        tokio::time::sleep(seconds(1000)).await;
        cloud.image("ami-1", seconds(0));
    });
    outcome.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_may_wait_until_something_is_gone() {
    let cloud = Arc::<Cloud>::default();
    let (id, poller) = (cloud.image("ami-1", seconds(0)), cloud.poller(here()));
    let gone = |state: Option<&&'static str>| match state {
        Some(_) => Verdict::NotYet("it is there".into()),
        None => Verdict::Done(()),
    };
    let cancel = CancellationToken::new();
    let (outcome, ()) = tokio::join!(poller.wait(&id, limit(seconds(600)), &cancel, gone), async {
        tokio::time::sleep(seconds(300)).await;
        cloud.ready.lock().unwrap().clear();
    });
    outcome.unwrap();
}

#[tokio::test(start_paused = true)]
async fn several_answers_in_a_row_may_be_asked_for() {
    let cloud = Arc::<Cloud>::default();
    let (id, poller) = (cloud.image("ami-1", seconds(0)), cloud.poller(here()));
    // Two endpoints answer in turn, of which one is late; then both agree.
    let mut looks = 0;
    let flapping = |_: Option<&&'static str>| {
        looks += 1;
        if looks == 2 || looks == 4 { Verdict::NotYet("it is pending".into()) } else { Verdict::Done(()) }
    };
    let wait = limit(seconds(600)).agreeing(3);
    poller.wait(&id, wait, &CancellationToken::new(), flapping).await.unwrap();
    assert_eq!(looks, 7);
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_hear_of_it_when_looking_itself_ends() {
    let poller: Images = Poller::new("image", here(), Pace::default(), async |_| -> Result<Vec<_>, CallError> {
        panic!("a mistake in a plugin")
    });
    for _ in 0..2 {
        let error = wait(&poller, "ami-1", limit(seconds(600))).await.unwrap_err();
        assert!(matches!(error, WaitError::Abandoned { .. }), "{error}");
    }
}

#[test]
fn a_wait_can_be_in_a_step_that_moves_between_threads() {
    fn can_move<T: Send>(value: T) -> T {
        value
    }
    let poller = Arc::<Cloud>::default().poller(here());
    drop(can_move(async move { wait(&poller, "ami-1", limit(seconds(1))).await }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_calls_depend_on_when_and_not_on_how_many(
        moments in proptest::collection::vec(0..100u64, 1..6),
        many in 2..20usize,
        ready in 0..300u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let calls = async |at_once: usize| {
                let (cloud, mut tasks) = (Arc::<Cloud>::default(), JoinSet::new());
                let poller = cloud.poller(here());
                for (index, moment) in moments.iter().enumerate() {
                    for number in 0..at_once {
                        let (poller, moment) = (poller.clone(), seconds(*moment));
                        let id = cloud.image(&format!("ami-{index}-{number}"), seconds(ready));
                        tasks.spawn(async move {
                            tokio::time::sleep(moment).await;
                            wait(&poller, &id, limit(seconds(7200))).await
                        });
                    }
                }
                assert!(tasks.join_all().await.iter().all(Result::is_ok));
                cloud.calls()
            };
            // A moment at which a look was due anyway may need a second one, for those who came just after it.
            let (one, many) = (calls(1).await, calls(many).await);
            assert!(one.abs_diff(many) <= moments.len(), "{many} calls, and {one} for one at a time");
        });
    }
}
