//! Calls: what is tried again, for how long, and what is told.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api_manners::{
    Bucket, CallError, Caller, ErrorClass, Failure, Manners, Operation, Rate, Service, Settings, classify_validation,
};
use insta::assert_snapshot;
use proptest::prelude::*;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::place;

/// A service that says what it is told to, and then yes.
#[derive(Default)]
struct Script {
    failures: Mutex<VecDeque<Failure>>,
    asked: AtomicU32,
}

impl Script {
    fn new(failures: impl IntoIterator<Item = Failure>) -> Self {
        Self { failures: Mutex::new(failures.into_iter().collect()), asked: AtomicU32::new(0) }
    }

    async fn ask(&self) -> Result<&'static str, Failure> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.failures.lock().unwrap().pop_front() {
            Some(failure) => Err(failure),
            None => Ok("yes"),
        }
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }
}

fn caller() -> Caller {
    Manners::default().caller(place("123", "eu-west-1"))
}

fn throttled() -> Failure {
    Failure::answered(Service::Ec2, Some("RequestLimitExceeded"), 503, "Request limit exceeded.")
}

fn unwell() -> Failure {
    Failure::answered(Service::Ec2, Some("InternalError"), 500, "An internal error has occurred")
}

fn absent() -> Failure {
    Failure::answered(Service::Ec2, Some("InvalidAMIID.NotFound"), 400, "The image id '[ami-1]' does not exist")
}

fn denied() -> Failure {
    Failure::answered(
        Service::Ec2,
        Some("UnauthorizedOperation"),
        403,
        "You are not authorized to perform this operation",
    )
}

fn expired() -> Failure {
    Failure::answered(Service::Ec2, Some("RequestExpired"), 400, "Request has expired")
}

/// Makes a call with ten minutes of time.
async fn call(operation: Operation, script: &Script) -> Result<&'static str, CallError> {
    call_by(&caller(), operation, script).await
}

async fn call_by(caller: &Caller, operation: Operation, script: &Script) -> Result<&'static str, CallError> {
    let deadline = Instant::now() + Duration::from_secs(600);
    caller.call(&operation, deadline, &CancellationToken::new(), || script.ask()).await
}

#[tokio::test(start_paused = true)]
async fn throttling_is_waited_out_by_every_call() {
    let operations = [
        Operation::reads("DescribeImages"),
        Operation::repeatable("ModifyImageAttribute"),
        Operation::once("CopySnapshot"),
    ];
    for operation in operations {
        let script = Script::new(vec![throttled(); 5]);
        assert_eq!(call(operation, &script).await.unwrap(), "yes");
        assert_eq!(script.asked(), 6);
    }
}

#[tokio::test(start_paused = true)]
async fn twenty_bakes_throttled_at_once_all_come_through() {
    let (manners, mut tasks) = (Manners::default(), tokio::task::JoinSet::new());
    for _ in 0..20 {
        let caller = manners.caller(place("123", "eu-west-1"));
        tasks.spawn(async move {
            call_by(&caller, Operation::repeatable("CreateTags"), &Script::new(vec![throttled(); 5])).await
        });
    }
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_unwell_is_asked_again_where_that_does_no_harm() {
    for operation in [Operation::reads("DescribeImages"), Operation::repeatable("CreateTags")] {
        let script = Script::new([unwell(), Failure::lost("the connection broke"), unwell()]);
        assert_eq!(call(operation, &script).await.unwrap(), "yes");
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_have_happened_is_not_asked_for_twice() {
    for failure in [unwell(), Failure::lost("the connection broke")] {
        let script = Script::new([throttled(), failure]);
        let error = call(Operation::once("RegisterImage"), &script).await.unwrap_err();
        assert_eq!(error.class(), Some(ErrorClass::UnknownOutcome));
        assert_eq!(script.asked(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn what_never_left_is_sent_again() {
    let script = Script::new(vec![Failure::not_sent("connection refused"); 3]);
    assert_eq!(call(Operation::once("RegisterImage"), &script).await.unwrap(), "yes");
}

#[tokio::test(start_paused = true)]
async fn an_answer_lost_to_the_end_leaves_nothing_unknown_when_nothing_was_changed() {
    for (operation, class) in [
        (Operation::reads("DescribeImages"), ErrorClass::Passing),
        (Operation::repeatable("CreateTags"), ErrorClass::UnknownOutcome),
    ] {
        let script = Script::new(vec![Failure::lost("the connection broke"); 1000]);
        assert_eq!(call(operation, &script).await.unwrap_err().class(), Some(class));
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_work_fails_at_the_first_try() {
    let begun = Instant::now();
    let malformed = Failure::answered(Service::Ec2, Some("InvalidAMIID.Malformed"), 400, "");
    for failure in [denied(), malformed, Failure::refused("there are no credentials"), absent()] {
        let script = Script::new([failure.clone()]);
        let error = call(Operation::reads("DescribeImages"), &script).await.unwrap_err();
        assert_eq!((error.class(), script.asked()), (Some(failure.class()), 1));
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn what_was_just_made_may_be_unknown_for_a_while() {
    let begun = Instant::now();
    let caller = caller();
    let operation = Operation::repeatable("CreateTags").on_new_id();
    let deadline = begun + Duration::from_secs(600);
    let ninety_seconds = async || if begun.elapsed() < Duration::from_secs(90) { Err(absent()) } else { Ok(()) };
    caller.call(&operation, deadline, &CancellationToken::new(), ninety_seconds).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_stays_unknown_ends_the_call_long_before_its_deadline() {
    let begun = Instant::now();
    let script = Script::new(vec![absent(); 1000]);
    let error = call(Operation::repeatable("CreateTags").on_new_id(), &script).await.unwrap_err();
    assert_eq!(error.class(), Some(ErrorClass::NotYetVisible));
    let elapsed = begun.elapsed().as_secs();
    assert!((180..=201).contains(&elapsed), "{elapsed}");
}

#[tokio::test(start_paused = true)]
async fn the_message_names_call_place_tries_and_what_the_service_said() {
    let script = Script::new([denied().with_request(Some("req-7"))]);
    let error = call(Operation::reads("DescribeImages"), &script).await.unwrap_err();
    assert_snapshot!(error, @"DescribeImages in region `eu-west-1` of account 123 failed: UnauthorizedOperation: You are not authorized to perform this operation (request req-7)");
    assert_snapshot!(error.hint().unwrap(), @"`aws sts decode-authorization-message` reads an encoded part of the message");

    let script = Script::new([throttled(), throttled(), absent()]);
    let CallError::Failed { attempts, .. } = call(Operation::reads("DescribeImages"), &script).await.unwrap_err()
    else {
        panic!("it was sent");
    };
    assert_eq!(attempts, 3);
}

#[tokio::test(start_paused = true)]
async fn each_retry_is_told() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let observer = Arc::clone(&told);
    let manners = Manners::observed(
        Settings::default(),
        Arc::new(move |retry| {
            observer.lock().unwrap().push(format!("{} {} {}", retry.operation, retry.attempt, retry.failure));
            assert!(retry.wait <= Duration::from_millis(400));
        }),
    );
    let script = Script::new([throttled(), unwell()]);
    call_by(&manners.caller(place("123", "eu-west-1")), Operation::reads("DescribeImages"), &script).await.unwrap();
    assert_snapshot!(told.lock().unwrap().join("\n"), @r"
    DescribeImages 1 RequestLimitExceeded: Request limit exceeded.
    DescribeImages 2 InternalError: An internal error has occurred
    ");
}

#[tokio::test(start_paused = true)]
async fn credentials_that_ran_out_are_refreshed_once() {
    let refreshed = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&refreshed);
    let caller = caller().refreshing(Arc::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
        Box::pin(async {})
    }));
    call_by(&caller, Operation::once("RegisterImage"), &Script::new([expired()])).await.unwrap();
    assert_eq!(refreshed.load(Ordering::Relaxed), 1);

    let script = Script::new([expired(), expired()]);
    let error = call_by(&caller, Operation::reads("DescribeImages"), &script).await.unwrap_err();
    assert_eq!((error.class(), script.asked()), (Some(ErrorClass::Expired), 2));
}

#[tokio::test(start_paused = true)]
async fn credentials_that_ran_out_end_a_call_when_nobody_can_refresh_them() {
    let script = Script::new([expired()]);
    let error = call(Operation::reads("DescribeImages"), &script).await.unwrap_err();
    assert_eq!((error.class(), script.asked()), (Some(ErrorClass::Expired), 1));
    assert_snapshot!(error.hint().unwrap(), @"get new credentials, and check this machine's clock");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_does_not_hold_a_call() {
    let begun = Instant::now();
    let never = || std::future::pending::<Result<(), Failure>>();
    let (cancel, deadline) = (CancellationToken::new(), begun + Duration::from_secs(100));
    let caller = caller();
    let error = caller.call(&Operation::reads("DescribeImages"), deadline, &cancel, never).await.unwrap_err();
    assert_eq!((error.class(), begun.elapsed()), (Some(ErrorClass::Passing), Duration::from_secs(100)));

    let once = Operation::once("RegisterImage").attempt_limit(Duration::from_secs(40));
    let begun = Instant::now();
    let error = caller.call(&once, begun + Duration::from_secs(10), &cancel, never).await.unwrap_err();
    assert_eq!((error.class(), begun.elapsed()), (Some(ErrorClass::UnknownOutcome), Duration::from_secs(40)));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_the_wait_between_tries() {
    let (begun, cancel) = (Instant::now(), CancellationToken::new());
    let script = Script::new(vec![throttled(); 1000]);
    let (caller, operation) = (caller(), Operation::once("RegisterImage"));
    let call = caller.call(&operation, begun + Duration::from_secs(600), &cancel, || script.ask());
    let (outcome, ()) = tokio::join!(call, async {
        tokio::time::sleep(Duration::from_secs(7)).await;
        cancel.cancel();
    });
    assert!(matches!(outcome, Err(CallError::Cancelled { .. })));
    assert_eq!(begun.elapsed(), Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_drops_a_read_and_lets_a_change_answer() {
    let slow = async || {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok("ami-1")
    };
    for (operation, answer, time) in
        [(Operation::reads("DescribeImages"), None, 1), (Operation::once("RegisterImage"), Some("ami-1"), 5)]
    {
        let (begun, cancel, caller) = (Instant::now(), CancellationToken::new(), caller());
        let call = async {
            let answer = caller.call(&operation, begun + Duration::from_secs(600), &cancel, slow).await;
            (answer.ok(), begun.elapsed())
        };
        let (outcome, ()) = tokio::join!(call, async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            cancel.cancel();
        });
        assert_eq!(outcome, (answer, Duration::from_secs(time)));
    }
}

#[tokio::test(start_paused = true)]
async fn callers_of_one_place_share_what_it_allows_and_others_do_not() {
    let manners = Manners::new(Settings { reads: Rate::new(1.0, 2), writes: Rate::new(1.0, 2), ..Settings::default() });
    let here = || manners.caller(place("123", "eu-west-1"));
    let call = async |caller: Caller, operation| call_by(&caller, operation, &Script::default()).await.unwrap();
    let begun = Instant::now();
    for _ in 0..2 {
        call(here(), Operation::reads("DescribeImages")).await;
        call(here(), Operation::once("RegisterImage")).await;
        call(manners.caller(place("123", "us-east-1")), Operation::reads("DescribeImages")).await;
        call(manners.caller(place("456", "eu-west-1")), Operation::reads("DescribeImages")).await;
    }
    let own = Bucket::Own { name: "start", rate: Rate::new(1.0, 1) };
    call(here(), Operation::repeatable("StartSnapshot").bucket(own)).await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    call(here(), Operation::reads("DescribeSnapshots")).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn who_keeps_a_pace_and_retries_alone_gets_every_failure_at_once() {
    let (begun, caller) = (Instant::now(), caller());
    let put = || Operation::repeatable("PutSnapshotBlock").bucket(Bucket::Unmetered).unrepeated();
    for _ in 0..1000 {
        let script = Script::new([throttled()]);
        let error = call_by(&caller, put(), &script).await.unwrap_err();
        assert_eq!((error.class(), script.asked()), (Some(ErrorClass::Throttled), 1));
    }
    call_by(&caller, Operation::repeatable("CreateTags"), &Script::default()).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_turn_does_not_come_says_so() {
    let manners = Manners::new(Settings { reads: Rate::new(0.1, 1), ..Settings::default() });
    let (caller, operation) = (manners.caller(place("123", "eu-west-1")), Operation::reads("DescribeImages"));
    call_by(&caller, operation.clone(), &Script::default()).await.unwrap();
    let (script, cancel) = (Script::default(), CancellationToken::new());
    let deadline = Instant::now() + Duration::from_secs(3);
    let error = caller.call(&operation, deadline, &cancel, || script.ask()).await.unwrap_err();
    assert_snapshot!(error, @"DescribeImages in region `eu-west-1` of account 123 was not sent: its turn did not come in 3s");
    assert_eq!((error.class(), script.asked()), (Some(ErrorClass::Throttled), 0));
}

#[tokio::test(start_paused = true)]
async fn a_cloud_may_know_better_than_the_table() {
    let answer = Failure::answered(Service::Ebs, Some("ValidationException"), 400, "Failed to read block data");
    let class = classify_validation(None, Some("Failed to read block data"));
    let script = Script::new([answer.with_class(class)]);
    assert_eq!(call(Operation::once("PutSnapshotBlock"), &script).await.unwrap(), "yes");
}

#[test]
fn a_call_can_be_made_by_a_step_that_moves_between_threads() {
    fn can_move<T: Send>(value: T) -> T {
        value
    }
    let (caller, cancel, script) = (caller(), CancellationToken::new(), Script::default());
    let operation = Operation::reads("DescribeImages");
    drop(can_move(async move { caller.call(&operation, Instant::now(), &cancel, || script.ask()).await }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_call_ends_by_its_deadline_and_never_repeats_what_may_have_happened(
        budget in 0..100u64,
        effect in 0..3u8,
        faults in proptest::collection::vec(0..5u8, 0..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let operation = match effect {
                0 => Operation::reads("DescribeImages"),
                1 => Operation::repeatable("CreateTags"),
                _ => Operation::once("RegisterImage"),
            };
            let failures = faults.iter().map(|fault| match fault {
                0 => unwell(),
                1 => Failure::lost("the connection broke"),
                2 => Failure::not_sent("connection refused"),
                _ => throttled(),
            });
            let (script, begun, caller) = (Script::new(failures), Instant::now(), caller());
            let deadline = begun + Duration::from_secs(budget);
            let outcome = caller.call(&operation, deadline, &CancellationToken::new(), || script.ask()).await;
            assert!(begun.elapsed() <= Duration::from_secs(budget) + Duration::from_millis(1));
            let unsure = faults.iter().take(script.asked() as usize).filter(|fault| **fault < 2).count();
            if effect == 2 {
                assert!(unsure <= 1);
                let unknown = outcome.as_ref().is_err_and(|error| error.class() == Some(ErrorClass::UnknownOutcome));
                assert_eq!(unsure == 1, unknown);
            }
            assert_eq!(outcome.is_ok(), script.asked() as usize == faults.len() + 1);
        });
    }
}
