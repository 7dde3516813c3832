/* The journal of one tool call, and the messages that wait, over a chain of runs of one conversation.

   Intent before the call, outcome behind it, each under the run's fence; the next OWNER finds an intent without an
   outcome and asks a person (the reaper looks at no effects); while a run is stopping outcomes still pass and intents
   do not; the end of a run starts the next one in its own transaction. The outside world is a counter: what a tool did
   stays done, whether anybody hears of it or not, also when the caller is a zombie or has been told to stop.

   It knows one call and who may make it again, no calls that ask a person by themselves, and not the order of messages.
   It is written after domain/effects.py, lifecycle/journal.py, lifecycle/finish.py, lifecycle/decide.py and
   lifecycle/succession.py. Every atomic{} is ONE transaction of the store (or one moment of the outside world).

   Each of these makes it wrong in one place, and the property named beside it must then break:
     BUG_NOINTENT    the call is made before its intent is on disk                              once
     BUG_BLINDRETRY  the next owner makes an unsafe call again whose outcome nobody knows       once
     BUG_RETRYSTANDS a person's `retry` is not used up by the intent that rests on it           once
     BUG_LEAVESTANDS an approval is not used up by the intent that rests on it                  leave_is_used_once
     BUG_NEWKEY      a keyed call gets a new key from each owner                                once
     BUG_OPENSETTLE  an outcome is written without looking whose intent it is                   settled_once
     BUG_NOLEAVE     the next owner takes an asked question for an answered one                 allowed_first
     BUG_BEGINLATE   an intent passes while the run is stopping                                 no_call_after_stop
     BUG_REFUSE      outcomes are refused while the run is stopping                             heard_is_kept
     BUG_HIDES       a stop ends without a look at the journal                                  no_hidden_call
     BUG_EPOCHONLY   the fence compares the epoch and not the run                               no_stale_write
     BUG_FINISH2TX   the end and the look at what waits are two transactions                    none_left_behind
     BUG_SENDNOLOCK  a message looks for a live run and joins it in two transactions            none_left_behind
     BUG_TWOSTART    the end starts a run for each message that waits                           one_live
     BUG_TWOTX       a decision and the move to `queued` are two transactions                   word_is_used          */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef CRASHES
#define CRASHES 3
#endif
#ifndef MESSAGES
#define MESSAGES 2
#endif

mtype = { QUEUED, RUNNING, WAITING, CANCELLING, COMPLETED, FAILED, CANCELLED };
mtype = { READ, KEYED, UNSAFE };
mtype = { NOTHING, INTENT, DONE };                                /* the journal's row of the call */
mtype = { UNASKED, OPEN, APPROVE, DENY, RETRY };                  /* the newest request: asked, or a word not used yet */

mtype status = QUEUED;
byte current = 1;            /* which run of the conversation is the live one, or was the last */
byte epoch = 0;          /* counted run by run */
byte crashes = 0;
mtype replay = UNSAFE;
bool needs_leave = false;

mtype row = NOTHING;
byte row_run = 0, row_epoch = 0;
mtype request = UNASKED;
bool plain = false;      /* the live run is a later one, which makes no call */
bool in_thread = false;  /* the call's result is in a stored step */
bool continued = false;  /* a person pressed Continue */

byte effects = 0;        /* what the outside world saw */
bool key_known = false;  /* to the tool, of a keyed call */

byte waiting_before = 0, waiting_during = 0, held = 0, applied = 0, sent = 0;
byte live = 1;

/* what the properties speak of */
byte retries = 0, leaves = 0, rested = 0, settled = 0;
bool allowed = false, made_unasked = false, stale = false, begun_in_stop = false, hides = false, unheard = false;

#ifdef LIVENESS  /* without what only the properties of safety look at */
#define COUNT(what) skip
#define NOTE(what) skip
#else
#define COUNT(what) what++
#define NOTE(what) what = true
#endif
#define FINAL (status == COMPLETED || status == FAILED || status == CANCELLED)
#define OWNED (status == RUNNING || status == CANCELLING)
#ifdef BUG_EPOCHONLY
#define MINE (epoch == mine)
#else
#define MINE (epoch == mine && current == my_run)
#endif
#define REFUSED (!MINE || !OWNED)
#define CHECK_STALE if :: current != my_run || epoch != mine -> NOTE(stale) :: else fi

/* The end's own transaction: after work that was done what waits goes on, else only what came during the stop. */
inline end(target) {
  epoch++; live--; status = target; request = UNASKED;
  if
  :: target == COMPLETED -> waiting_during = waiting_during + waiting_before; waiting_before = 0
  :: else -> held = held + waiting_before; waiting_before = 0
  fi;
#ifndef BUG_FINISH2TX
  start_next()
#endif
}

/* The first becomes the next run, of which the others then wait; a call of its own is another call: it makes none here. */
inline start_next() {
  if
  :: waiting_during > 0 ->
       waiting_during--; applied++; live++;
#ifdef BUG_TWOSTART
       if :: waiting_during > 0 -> waiting_during--; applied++; live++ :: else fi;
#endif
       waiting_before = waiting_during; waiting_during = 0;
       current++; epoch = 0; crashes = 0; status = QUEUED;
       plain = true
  :: else
  fi
}

/* Every end by a stop lists what may have happened: an intent of an unsafe call without an outcome. */
inline end_stopped(lists) {
  if :: row == INTENT && replay == UNSAFE && row_run == current && !(lists) -> NOTE(hides) :: else fi;
  end(CANCELLED)
}

inline write_intent() {
  row = INTENT; row_run = my_run; row_epoch = mine;
  CHECK_STALE;
  if :: status == CANCELLING -> NOTE(begun_in_stop) :: else fi;
  if :: needs_leave && !allowed -> NOTE(made_unasked) :: else fi
}

#ifdef BUG_BEGINLATE
#define MAY_BEGIN (MINE && OWNED)
#else
#define MAY_BEGIN (MINE && status == RUNNING)
#endif
#ifdef BUG_REFUSE
#define MAY_SETTLE (MINE && status == RUNNING)
#else
#define MAY_SETTLE (MINE && OWNED)
#endif
#ifdef BUG_OPENSETTLE
#define MY_INTENT true
#else
#define MY_INTENT (row == INTENT && row_run == my_run && row_epoch == mine)
#endif
#ifdef BUG_HIDES
#define LISTS false
#else
#define LISTS true
#endif

proctype Worker() {
  byte my_run = 0, mine = 0; bool heard;
idle:
  atomic { my_run = 0; mine = 0; heard = false };
  do
  :: atomic { status == QUEUED -> epoch++; my_run = current; mine = epoch; status = RUNNING } break
#ifdef BUG_FINISH2TX
  :: atomic { FINAL && waiting_during > 0 -> start_next() }
  :: atomic { FINAL && waiting_during > 0 -> goto lost }
#endif
  od;
gate:
  if
  :: goto idle
  :: atomic { in_thread || plain -> goto finish }
#ifdef BUG_NOINTENT
  :: !(in_thread || plain) && row == NOTHING && replay != READ && !needs_leave -> goto call
#endif
  :: atomic { !(in_thread || plain) && MINE && status == CANCELLING && !MAY_BEGIN -> goto stopping }
  :: atomic { !(in_thread || plain) && REFUSED -> goto idle }
  :: atomic { !(in_thread || plain) && MAY_BEGIN ->
       if
       :: replay == READ && !needs_leave -> goto call  /* nothing is recorded */
       :: row == DONE -> goto result
       :: row == INTENT && request == RETRY ->
            write_intent();
#ifndef BUG_RETRYSTANDS
            request = UNASKED;
#endif
            goto call
       :: row == INTENT && request != RETRY && replay != UNSAFE -> write_intent(); goto call
#ifdef BUG_BLINDRETRY
       :: row == INTENT && request != RETRY && replay == UNSAFE -> write_intent(); goto call
#else
       :: row == INTENT && request != RETRY && replay == UNSAFE -> goto ask
#endif
#ifndef BUG_NOINTENT
       :: row == NOTHING && !needs_leave && replay != READ -> write_intent(); goto call
#endif
#ifdef BUG_NOLEAVE
       :: row == NOTHING && needs_leave && request == UNASKED && crashes > 0 -> write_intent(); goto call
#endif
       :: row == NOTHING && needs_leave && request == UNASKED -> goto ask
       :: row == NOTHING && request == DENY -> row = DONE; row_run = 0; row_epoch = 0; COUNT(settled); request = UNASKED; goto result
       :: row == NOTHING && request == APPROVE ->
            write_intent(); COUNT(rested);
#ifndef BUG_LEAVESTANDS
            request = UNASKED;
#endif
            goto call
#ifdef BUG_LEAVESTANDS
       :: row == INTENT && request == APPROVE -> write_intent(); COUNT(rested); goto call
#endif
       fi }
  fi;
ask:
  if
  :: goto idle
  :: atomic {
       if
       :: MINE && status == RUNNING -> request = OPEN; status = WAITING; epoch++; goto idle
       :: MINE && status == CANCELLING -> goto stopping
       :: REFUSED -> goto idle
       fi }
  fi;
call:
  if
  :: goto idle  /* dies, or freezes, before the call goes out */
  :: atomic { MINE && status == CANCELLING && replay != UNSAFE -> goto stopping }  /* cut at once */
  :: atomic { MINE && status == CANCELLING && replay == UNSAFE -> end_stopped(LISTS); goto call }  /* waited long enough: forced */
  :: atomic {
       if
       :: replay == UNSAFE -> COUNT(effects)
#ifdef BUG_NEWKEY
       :: replay == KEYED -> COUNT(effects)
#else
       :: replay == KEYED && !key_known -> key_known = true; COUNT(effects)
       :: replay == KEYED && key_known  /* answers what it answered before */
#endif
       :: replay == READ
       fi }
  fi;
  if
  :: goto idle  /* dies after the effect */
  :: atomic { heard = (MINE && OWNED) }
  fi;
settle:
  if
  :: goto idle  /* dies with the answer in its hands: nobody will hear it */
  :: atomic { replay == READ && !needs_leave -> goto result }
#ifdef BUG_NOINTENT
  :: atomic { row == NOTHING && MAY_SETTLE -> row = DONE; row_run = 0; row_epoch = 0; COUNT(settled); goto result }
#endif
  :: atomic { replay != READ || needs_leave ->
       if
       :: MAY_SETTLE && MY_INTENT -> row = DONE; row_run = 0; row_epoch = 0; COUNT(settled); CHECK_STALE; goto result
#ifdef BUG_OPENSETTLE
       :: !MAY_SETTLE -> row = DONE; row_run = 0; row_epoch = 0; COUNT(settled); goto idle
#endif
       :: !(MAY_SETTLE && MY_INTENT) && MINE && status == CANCELLING -> goto stopping
       :: else -> goto idle
       fi }
  fi;
result:
  if
  :: goto idle
  :: atomic {
       if
       :: MINE && status == RUNNING -> in_thread = true; CHECK_STALE; goto finish
       :: MINE && status == CANCELLING -> goto stopping
       :: REFUSED -> goto idle
       fi }
  fi;
finish:
  if
  :: goto idle
  :: atomic {
       if
       :: MINE && status == RUNNING -> CHECK_STALE; end(COMPLETED)
       :: MINE && status == CANCELLING -> goto stopping
       :: REFUSED
       fi;
       goto idle }
  fi;
stopping:  /* nothing of this owner is under way any more */
  if
  :: goto idle
  :: atomic {
       if
       :: MINE && status == CANCELLING ->
            if :: heard && replay == UNSAFE && row != DONE -> NOTE(unheard) :: else fi;
            end_stopped(LISTS)
       :: else
       fi;
       goto idle }
  fi;
#ifdef BUG_FINISH2TX
lost: skip
#endif
}

proctype Reaper() {
  do
  :: atomic { status == RUNNING ->
       crashes++;
       if
       :: crashes >= CRASHES -> end(FAILED)
       :: crashes < CRASHES -> status = QUEUED; epoch++
       fi }
  :: atomic { status == CANCELLING -> end_stopped(LISTS) }
  od
}

#ifdef BUG_TWOTX
#define GO_ON if :: status = QUEUED :: skip /* died in between */ fi
#else
#define GO_ON status = QUEUED
#endif

proctype Outside() {  /* people: they answer, stop, continue, or do not */
  bool stopped = false;
  do
  :: break
  :: atomic { request == OPEN && row == NOTHING ->
       COUNT(leaves); NOTE(allowed); GO_ON;
       if :: request = APPROVE :: request = DENY fi }
  :: atomic { request == OPEN && row == INTENT && retries == 0 -> request = RETRY; retries++; GO_ON }
  :: atomic { request == OPEN && row == INTENT -> row = DONE; row_run = 0; row_epoch = 0; COUNT(settled); request = UNASKED; status = QUEUED }  /* mark done, skip */
  :: atomic { !stopped && current == 1 && !FINAL ->
       stopped = true;
       if
       :: status == RUNNING -> status = CANCELLING
       :: status == QUEUED || status == WAITING -> end(CANCELLED)
       :: status == CANCELLING
       fi }
  :: atomic { !continued && !plain && status == FAILED && live == 0 ->  /* the same pending step, by another run */
       continued = true; current++; epoch = 0; crashes = CRASHES - 1; live++; status = QUEUED }
  od
}

proctype Sender() {
  bool joins;
  do
  :: sent < MESSAGES ->
#ifdef BUG_SENDNOLOCK
       joins = !FINAL;
#endif
       atomic {
#ifndef BUG_SENDNOLOCK
         joins = !FINAL;
#endif
         sent++;
         if
         :: joins && status == CANCELLING -> waiting_during++
         :: joins && status != CANCELLING -> waiting_before++
         :: !joins ->
              applied++; live++; current++; epoch = 0; crashes = 0; status = QUEUED;
              plain = true
         fi; joins = false }
  :: sent == MESSAGES -> break
  od
}

init {
  byte started = 0;
  atomic {
    if :: replay = READ :: replay = KEYED :: replay = UNSAFE fi;
    if :: needs_leave = true :: skip fi;
    do :: started < WORKERS -> run Worker(); started++ :: else -> break od;
    started = 0;
    run Reaper(); run Outside(); run Sender()
  }
}

#define ONCE (effects <= 1 + retries && (replay != KEYED || effects <= 1))
#define LEAVE_IS_USED_ONCE (rested <= leaves)
#define ALLOWED_FIRST (!made_unasked)
#define SETTLED_ONCE (settled <= 1)
#define NO_CALL_AFTER_STOP (!begun_in_stop)
#define HEARD_IS_KEPT (!unheard)
#define NO_HIDDEN_CALL (!hides)
#define NO_STALE_WRITE (!stale)
#define NONE_LEFT_BEHIND (!FINAL || waiting_before + waiting_during == 0)
#define NONE_LOST (waiting_before + waiting_during + held + applied == sent)
#define ONE_LIVE (live <= 1 && ((live == 0) == FINAL))
#define DONE_BEFORE_SHOWN (!in_thread || replay == READ || row == DONE)

ltl safe { [] (ONCE && LEAVE_IS_USED_ONCE && ALLOWED_FIRST && SETTLED_ONCE && NO_CALL_AFTER_STOP && HEARD_IS_KEPT
               && NO_HIDDEN_CALL && NO_STALE_WRITE && NONE_LEFT_BEHIND && NONE_LOST && ONE_LIVE && DONE_BEFORE_SHOWN) }
ltl once { [] ONCE }
ltl leave_is_used_once { [] LEAVE_IS_USED_ONCE }
ltl allowed_first { [] ALLOWED_FIRST }
ltl settled_once { [] SETTLED_ONCE }
ltl no_call_after_stop { [] NO_CALL_AFTER_STOP }
ltl heard_is_kept { [] HEARD_IS_KEPT }
ltl no_hidden_call { [] NO_HIDDEN_CALL }
ltl no_stale_write { [] NO_STALE_WRITE }
ltl none_left_behind { [] NONE_LEFT_BEHIND }
ltl one_live { [] ONE_LIVE }

/* What must come to pass, where every process that can go on does so at last. */
ltl comes_to_rest { <> [] (FINAL || status == WAITING) }
ltl word_is_used { [] ((request == APPROVE || request == RETRY) -> <> (request != APPROVE && request != RETRY)) }

#ifdef REACH  /* to be broken: the model does come to this status */
ltl unreached { [] (status != REACH) }
#endif
