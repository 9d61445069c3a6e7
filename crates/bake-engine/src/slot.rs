//! Slots: how much of each sort of work runs at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;

/// One slot more than this often: a burst that is over soon gets no more, and a cloud sees no wall of calls.
const RISE: Duration = Duration::from_millis(50);

/// Slots that nobody wanted for as long as this are given up.
const IDLE: Duration = Duration::from_secs(5);

/// What a step mostly uses, which decides how many like it run at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Slot {
    /// Short calls and light work.
    #[default]
    Api,
    /// Copying, checking and hashing on local disks.
    LocalIo,
    /// Installing packages.
    Chroot,
    /// Sending blocks.
    Upload,
}

/// Between how many and how many steps of one sort run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotRange {
    least: usize,
    most: usize,
}

impl SlotRange {
    /// Allows `least` at once, and up to `most` while more of them are ready. At least one: a step that can never start
    /// would hang the run.
    pub fn new(least: usize, most: usize) -> SlotRange {
        let least = least.max(1);
        SlotRange { least, most: most.max(least) }
    }

    /// Allows the same number at all times.
    pub fn fixed(number: usize) -> SlotRange {
        SlotRange::new(number, number)
    }
}

/// How many steps of each sort run at once.
///
/// Each number grows with the work that is ready, one every 50 ms, is halved when the other side asks to slow down, and
/// falls back when nobody has wanted a slot for five seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotLimits {
    /// For [`Slot::Api`].
    pub api: SlotRange,
    /// For [`Slot::LocalIo`].
    pub local_io: SlotRange,
    /// For [`Slot::Chroot`].
    pub chroot: SlotRange,
    /// For [`Slot::Upload`].
    pub upload: SlotRange,
}

impl Default for SlotLimits {
    fn default() -> SlotLimits {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        SlotLimits {
            api: SlotRange::new(4, 64),
            local_io: SlotRange::new(1, cores),
            // Package managers take turns by locks of their own, and each wants much memory.
            chroot: SlotRange::new(1, 2),
            upload: SlotRange::new(4, 64),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Slots {
    api: Arc<Room>,
    local_io: Arc<Room>,
    chroot: Arc<Room>,
    upload: Arc<Room>,
}

impl Slots {
    pub(crate) fn new(limits: SlotLimits) -> Slots {
        let SlotLimits { api, local_io, chroot, upload } = limits;
        let [api, local_io, chroot, upload] = [api, local_io, chroot, upload].map(|range| Arc::new(Room::new(range)));
        Slots { api, local_io, chroot, upload }
    }

    /// Returns the place of one step, without a slot yet.
    pub(crate) fn seat(&self, slot: Slot) -> Seat {
        let room = match slot {
            Slot::Api => &self.api,
            Slot::LocalIo => &self.local_io,
            Slot::Chroot => &self.chroot,
            Slot::Upload => &self.upload,
        };
        Seat { room: Arc::clone(room), held: Arc::default() }
    }
}

/// The slots of one sort.
#[derive(Debug)]
struct Room {
    range: SlotRange,
    fill: Mutex<Fill>,
    /// Who waits stands in line here, and the first one looks for a slot. So nobody is overtaken.
    line: tokio::sync::Mutex<()>,
    freed: Notify,
}

#[derive(Debug)]
struct Fill {
    taken: usize,
    allowed: usize,
    may_rise: Option<Instant>,
    last_full: Option<Instant>,
}

/// What the first one in line finds.
enum Look {
    Taken,
    /// Nothing until one is freed.
    Full,
    /// Nothing until one is freed, or there is one more.
    RisesAt(Instant),
}

impl Room {
    fn new(range: SlotRange) -> Room {
        let fill = Fill { taken: 0, allowed: range.least, may_rise: None, last_full: None };
        Room { range, fill: Mutex::new(fill), line: tokio::sync::Mutex::default(), freed: Notify::new() }
    }

    async fn take(&self) {
        let _first_in_line = self.line.lock().await;
        loop {
            match self.look(Instant::now()) {
                Look::Taken => return,
                Look::Full => self.freed.notified().await,
                Look::RisesAt(then) => {
                    tokio::select! {
                        () = self.freed.notified() => {}
                        () = tokio::time::sleep_until(then) => {}
                    }
                }
            }
        }
    }

    fn look(&self, now: Instant) -> Look {
        let mut fill = self.fill();
        if fill.last_full.is_some_and(|then| now.duration_since(then) >= IDLE) && fill.taken < fill.allowed {
            fill.allowed = fill.taken.max(self.range.least);
            fill.last_full = None;
        }
        if fill.taken >= fill.allowed {
            if fill.allowed >= self.range.most {
                return Look::Full;
            }
            let then = *fill.may_rise.get_or_insert(now + RISE);
            if now < then {
                return Look::RisesAt(then);
            }
            fill.allowed += 1;
            fill.may_rise = Some(now + RISE);
        }
        fill.taken += 1;
        if fill.taken == fill.allowed {
            fill.last_full = Some(now);
        }
        Look::Taken
    }

    fn leave(&self) {
        let mut fill = self.fill();
        if fill.taken == fill.allowed {
            fill.last_full = Some(Instant::now());
        }
        fill.taken -= 1;
        drop(fill);
        // Kept for the next one if nobody waits: who comes looks before it waits.
        self.freed.notify_one();
    }

    fn slow_down(&self) {
        let mut fill = self.fill();
        fill.allowed = (fill.allowed / 2).max(self.range.least);
        fill.may_rise = Some(Instant::now() + IDLE);
    }

    fn fill(&self) -> MutexGuard<'_, Fill> {
        self.fill.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives the slot back when it is dropped.
#[derive(Debug)]
struct Held(Arc<Room>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// A step's claim to a slot: given up while it waits, taken again before it works.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    room: Arc<Room>,
    held: Arc<Mutex<Option<Held>>>,
}

impl Seat {
    pub(crate) async fn take(&self) {
        self.room.take().await;
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(Held(Arc::clone(&self.room)));
    }

    /// Gives the slot up and says whether there was one.
    pub(crate) fn leave(&self) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }

    /// Lets fewer work at once for a while: the other side asked for it.
    pub(crate) fn slow_down(&self) {
        self.room.slow_down();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn allowed(room: &Room) -> usize {
        room.fill().allowed
    }

    /// Lets that many work for so long at the same time, and returns how many did at most.
    async fn burst(room: &Arc<Room>, number: usize, time: Duration) -> usize {
        let most = Arc::new(AtomicUsize::new(0));
        let work = (0..number).map(|_| {
            let (room, most) = (Arc::clone(room), Arc::clone(&most));
            tokio::spawn(async move {
                room.take().await;
                most.fetch_max(room.fill().taken, Ordering::SeqCst);
                tokio::time::sleep(time).await;
                room.leave();
            })
        });
        for work in work.collect::<Vec<_>>() {
            work.await.unwrap();
        }
        most.load(Ordering::SeqCst)
    }

    #[tokio::test(start_paused = true)]
    async fn slots_grow_one_by_one_with_the_work_and_no_further_than_the_limit() {
        let room = Arc::new(Room::new(SlotRange::new(2, 6)));
        assert_eq!(burst(&room, 2, Duration::from_secs(9)).await, 2, "nobody waited");
        let begun = Instant::now();
        assert_eq!(burst(&room, 4, Duration::from_millis(99)).await, 3);
        assert_eq!(begun.elapsed().as_millis(), 198);
        assert_eq!(burst(&room, 50, Duration::from_secs(1)).await, 6);
    }

    #[tokio::test(start_paused = true)]
    async fn slots_that_nobody_wants_are_given_up() {
        let room = Arc::new(Room::new(SlotRange::new(2, 6)));
        burst(&room, 50, Duration::from_secs(1)).await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        burst(&room, 1, Duration::from_millis(1)).await;
        assert_eq!(allowed(&room), 6, "not for a moment's rest");
        tokio::time::sleep(Duration::from_secs(1)).await;
        burst(&room, 1, Duration::from_millis(1)).await;
        assert_eq!(allowed(&room), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_asked_to_slow_down_does_so_for_a_while() {
        let room = Arc::new(Room::new(SlotRange::new(2, 8)));
        burst(&room, 50, Duration::from_secs(1)).await;
        room.slow_down();
        assert_eq!(allowed(&room), 4);
        assert_eq!(burst(&room, 8, Duration::from_secs(2)).await, 4, "no rise for a moment");
        (0..9).for_each(|_| room.slow_down());
        assert_eq!(allowed(&room), 2, "never below the least");
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_waiting_holds_up_nobody() {
        let room = Arc::new(Room::new(SlotRange::fixed(1)));
        room.take().await;
        for _ in 0..3 {
            let impatient = tokio::time::timeout(Duration::from_secs(1), room.take()).await;
            assert!(impatient.is_err());
        }
        let waits = tokio::spawn({
            let room = Arc::clone(&room);
            async move { room.take().await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        room.leave();
        waits.await.unwrap();
        assert_eq!(room.fill().taken, 1);
    }

    #[test]
    fn no_range_is_empty() {
        assert_eq!(SlotRange::new(0, 0), SlotRange::fixed(1));
        assert_eq!(SlotRange::new(5, 2), SlotRange::fixed(5));
    }
}
