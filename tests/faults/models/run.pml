/* The protocol of one run: lease and epoch, a person's Stop, a newer message that supersedes it, a question to a
   person, deadlines, and the messages that wait for its end. Every atomic{} is ONE transaction of the store; between
   two of them anything may happen, and whoever works may die or freeze and wake up later as a zombie.

   It is written after domain/machine.py, domain/followups.py and lifecycle/. It knows one question, two messages
   (NEWER asks to interrupt, OLDER waits in the queue) and SIZE-many workers, and no clock: a lease may be over at any
   moment, a time limit too.

   Each of these makes it wrong in one place, and the property named beside it must then break:
     BUG_NOFENCE     a worker's write does not compare the epoch                               no_stale_write
     BUG_BLINDSTOP   Stop writes the status without looking at it                              one_end
     BUG_RACINGSTOP  Stop looks, and writes what followed from that in a second transaction    one_end
     BUG_STOPINMEMORY  the Stop of a running run is told to its worker, not written            accepted_stop_wins
     BUG_FIRSTCAUSE  a person's Stop does not outrank the stop of a policy                     accepted_stop_wins
     BUG_KEEPSDURING what was sent during a policy's stop does not count as before a person's  nothing_older_starts
     BUG_ENDTHENSTART the end and the start of the next run are two transactions               all_taken_at_end
     BUG_TWOTX       the decision and the move to `queued` are two transactions                parked_means_open
     BUG_LATE        a decision is taken after the time limit, before the sweep                limit_holds
     BUG_BOTHDECIDE  of two who decide at once both are taken                                  one_decision
     BUG_HANDEDONCE  the decision is handed to the first owner only                            asked_once
     BUG_EARLYUSED   the decision counts as used when it is handed out                         asked_once
     BUG_NOVOID      the end leaves decisions that nobody used                                 end_closes_question
     BUG_NOREAPSTOP  nobody looks after a stop whose owner is gone                             stop_ends
     BUG_NOCAP       lost owners are not counted                                               comes_to_rest        */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef CRASHES
#define CRASHES 3  /* domain/machine.py: MAX_CRASHES */
#endif
#define STEPS 2    /* a question may stand before the last one */
#define NEWER 0
#define OLDER 1

mtype = { QUEUED, RUNNING, WAITING, CANCELLING, COMPLETED, FAILED, CANCELLED, INTERRUPTED, EXPIRED };
mtype = { NONE, STOP, SUPERSEDED, DEADLINE, EXHAUSTED, OTHER };        /* why: of a stop, or of an end */
mtype = { UNASKED, OPEN, DECIDED, CONSUMED, VOID, TIMED_OUT };         /* the question */
mtype = { NO_LIMIT, EXPIRE, DENY };                                    /* what its time limit does */
mtype = { NOT_SENT, WAITS, HELD, APPLIED, PASSED_ON };                 /* a message */

mtype status = QUEUED;
mtype cause = NONE;      /* of the stop that was accepted */
mtype reason = NONE;     /* of the end */
byte epoch = 0;
byte crashes = 0;
byte steps = 0;
bool handed_back = false;

mtype question = UNASKED;
mtype limit = NO_LIMIT;  /* chosen with the question */
bool late = false;       /* the question's time is over, by the database's clock */
bool in_thread = false;  /* the answer is in a stored step */

mtype message[2] = NOT_SENT;
bool during_stop[2] = false;
bool older_than_stop[2] = false;  /* it waited when a person's Stop was accepted */

bool accepted = false;   /* a person's Stop was answered 202 */
bool told = false;       /* BUG_STOPINMEMORY: only the worker knows */
bool handed = false;     /* BUG_HANDEDONCE: an owner got the decision */
bool owed = false;       /* BUG_ENDTHENSTART: ended, nothing started yet */

byte ends = 0, questions = 0, decisions = 0, starts = 0, causes = 0;
bool stale = false, decided_late = false;

#define FINAL (status == COMPLETED || status == FAILED || status == CANCELLED || status == INTERRUPTED || status == EXPIRED)
#define OWNED (status == RUNNING || status == CANCELLING)
#ifdef BUG_NOFENCE
#define MINE true
#else
#define MINE (epoch == mine)
#endif
#define CHECK_STALE if :: epoch != mine -> stale = true :: else fi

/* domain/followups.py: after work that was done, or for a newer message, all go on; else what came during the stop. */
#define GOES_ON (status == COMPLETED || (status == INTERRUPTED && reason == SUPERSEDED))
#define ELIGIBLE(i) (message[i] == WAITS && (GOES_ON || during_stop[i]))

inline succession() {
  if
  :: ELIGIBLE(NEWER) -> message[NEWER] = APPLIED; starts++
  :: !ELIGIBLE(NEWER) && message[NEWER] == WAITS -> message[NEWER] = HELD
  :: else
  fi;
  if
  :: ELIGIBLE(OLDER) && message[NEWER] == APPLIED -> message[OLDER] = PASSED_ON
  :: ELIGIBLE(OLDER) && message[NEWER] != APPLIED -> message[OLDER] = APPLIED; starts++
  :: !ELIGIBLE(OLDER) && message[OLDER] == WAITS -> message[OLDER] = HELD
  :: else
  fi
}

inline end(target, why) {
  if :: OWNED -> epoch++ :: else fi;
  status = target; reason = why; ends++;
  if
  :: question == OPEN -> question = VOID
#ifndef BUG_NOVOID
  :: question == DECIDED -> question = VOID
#endif
  :: else
  fi;
#ifdef BUG_ENDTHENSTART
  owed = true
#else
  succession()
#endif
}

inline end_by_cause() {
  if
  :: cause == STOP -> end(CANCELLED, STOP)
  :: cause == SUPERSEDED -> end(INTERRUPTED, SUPERSEDED)
  :: cause == DEADLINE -> end(EXPIRED, DEADLINE)
  fi
}

/* The right to write: what a worker's write meets. `idle` is where a process begins, also after it died. */
#define REFUSED (!MINE || !OWNED)

active [WORKERS] proctype Worker() {
  byte mine; bool answer;
idle:
  atomic { mine = 0; answer = false };
  do
  :: atomic { status == QUEUED ->
       epoch++; mine = epoch; status = RUNNING;
       answer = (question == DECIDED);
#ifdef BUG_HANDEDONCE
       if :: answer && handed -> answer = false :: answer && !handed -> handed = true :: else fi;
#endif
#ifdef BUG_EARLYUSED
       if :: answer -> question = CONSUMED :: else fi;
#endif
     } goto work
#ifdef BUG_ENDTHENSTART
  :: atomic { owed -> owed = false; succession() }
  :: atomic { owed -> owed = false }  /* died in between */
#endif
  od;
work:
  if
  :: atomic { told = false; goto idle }  /* died, or froze and gave up: the run still names this owner */
  :: atomic { (steps < STEPS - 1 || question == UNASKED || answer || in_thread) && steps < STEPS ->
       if
       :: MINE && status == RUNNING ->
            CHECK_STALE; steps++;
            if
            :: answer -> answer = false; in_thread = true; if :: question == DECIDED -> question = CONSUMED :: else fi
            :: else
            fi;
            goto work
       :: MINE && status == CANCELLING -> goto stopping
       :: REFUSED -> goto idle
       fi }
  :: atomic { steps == STEPS - 1 && !answer && !in_thread ->  /* asks; a free choice where nothing was asked yet */
       if
       :: MINE && status == RUNNING ->
            question = OPEN; questions++; status = WAITING; epoch++;
            if :: limit = EXPIRE :: limit = DENY :: skip fi;
            goto idle
       :: MINE && status == CANCELLING -> goto stopping
       :: REFUSED -> goto idle
       fi }
  :: atomic { !handed_back ->  /* a drain, a rate limit: no crash */
       if
       :: MINE && status == RUNNING -> handed_back = true; status = QUEUED; epoch++; goto idle
       :: MINE && status == CANCELLING -> goto stopping
       :: REFUSED -> goto idle
       fi }
  :: atomic {  /* the agent fails */
       if
       :: MINE && status == RUNNING -> CHECK_STALE; end(FAILED, OTHER); goto idle
       :: MINE && status == CANCELLING -> goto stopping
       :: REFUSED -> goto idle
       fi }
  :: atomic { steps == STEPS ->  /* done; where a stop came first, it decides */
       if
       :: MINE && told -> end(CANCELLED, STOP); goto idle
       :: MINE && status == RUNNING && !told -> CHECK_STALE; end(COMPLETED, OTHER); goto idle
       :: MINE && status == CANCELLING -> CHECK_STALE; end_by_cause(); goto idle
       :: REFUSED -> goto idle
       fi }
  :: atomic { MINE && status == CANCELLING -> goto stopping }
  fi;
stopping:
  if
  :: goto idle  /* died while it put things in order */
  :: atomic { if :: MINE && status == CANCELLING -> end_by_cause() :: else fi }
  fi;
  goto idle;
}

active proctype Reaper() {
  do
  :: atomic { status == RUNNING ->  /* its lease is over */
       epoch++;
#ifndef BUG_NOCAP
       crashes++;
#endif
       if
       :: crashes >= CRASHES -> end(FAILED, EXHAUSTED)
       :: crashes < CRASHES -> end(INTERRUPTED, OTHER)  /* recovery = "ask" */
       :: crashes < CRASHES -> status = QUEUED          /* recovery = "auto" */
       fi }
#ifndef BUG_NOREAPSTOP
  :: atomic { status == CANCELLING -> end_by_cause() }  /* no owner, or one that takes too long: forced */
#endif
  :: atomic { status == RUNNING -> status = CANCELLING; cause = DEADLINE; causes++ }  /* the run's own deadline */
  :: atomic { status == QUEUED || status == WAITING -> cause = DEADLINE; end(EXPIRED, DEADLINE) }
  :: atomic { late && status == WAITING && limit == EXPIRE && question == OPEN -> question = TIMED_OUT; end(EXPIRED, DEADLINE) }
  :: atomic { late && status == WAITING && limit == DENY && question == OPEN -> question = DECIDED; decisions++; status = QUEUED }
  od
}

inline accept_stop() {
  accepted = true;
  older_than_stop[NEWER] = (message[NEWER] == WAITS);
  older_than_stop[OLDER] = (message[OLDER] == WAITS)
}

inline decide() { question = DECIDED; decisions++; if :: late -> decided_late = true :: else fi }
#ifdef BUG_LATE
#define IN_TIME true
#else
#define IN_TIME (!late)
#endif

active proctype Outside() {  /* people and time: each thing happens at most once, or never */
  mtype seen = NONE; bool pressed = false;
  do
  :: break
  :: atomic { status == WAITING && limit != NO_LIMIT && !late -> late = true }
  /* a message that wants the conversation now */
  :: atomic { message[NEWER] == NOT_SENT && !FINAL ->
       message[NEWER] = WAITS;
       if
       :: status == QUEUED || status == WAITING -> cause = SUPERSEDED; end(INTERRUPTED, SUPERSEDED)
       :: status == RUNNING -> status = CANCELLING; cause = SUPERSEDED; causes++
       :: status == CANCELLING -> during_stop[NEWER] = true
       fi }
  /* a message that waits its turn */
  :: atomic { message[OLDER] == NOT_SENT && !FINAL ->
       message[OLDER] = WAITS; during_stop[OLDER] = (status == CANCELLING) }
  /* a person answers */
#if !defined(BUG_TWOTX) && !defined(BUG_BOTHDECIDE)
  :: atomic { question == OPEN && IN_TIME -> decide(); status = QUEUED }
#endif
  /* a person presses Stop */
#if defined(BUG_BLINDSTOP)
  :: atomic { !pressed -> pressed = true; accept_stop(); cause = STOP; end(CANCELLED, STOP) }
#elif defined(BUG_RACINGSTOP)
  :: atomic { seen == NONE && !FINAL -> seen = status }
  :: atomic { seen != NONE && !pressed ->
       pressed = true; accept_stop(); cause = STOP;
       if :: seen == QUEUED || seen == WAITING -> end(CANCELLED, STOP) :: else -> status = CANCELLING fi }
#else
  :: atomic { !pressed && !FINAL ->  /* after the end: 409 */
       pressed = true; accept_stop();
       if
       :: status == QUEUED || status == WAITING -> cause = STOP; end(CANCELLED, STOP)
#ifdef BUG_STOPINMEMORY
       :: status == RUNNING -> told = true
#else
       :: status == RUNNING -> status = CANCELLING; cause = STOP; causes++
#endif
       :: status == CANCELLING ->
            skip;
#ifndef BUG_FIRSTCAUSE
            cause = STOP; causes++;
#endif
#ifndef BUG_KEEPSDURING
            during_stop[NEWER] = false; during_stop[OLDER] = false
#endif
       fi }
#endif
  od
}

#if defined(BUG_TWOTX) || defined(BUG_BOTHDECIDE)
active [2] proctype Decides() {  /* two tabs that answer at once */
  bool won = false;
#ifdef BUG_TWOTX
  atomic { question == OPEN && IN_TIME -> decide(); won = true };
  if :: atomic { status == WAITING -> status = QUEUED } :: skip /* died in between */ fi
#else
  atomic { question == OPEN && IN_TIME -> won = true };
  atomic { if :: question == OPEN || question == DECIDED -> decide() :: else fi;
           if :: status == WAITING -> status = QUEUED :: else fi }
#endif
}
#endif

#define TAKEN(i) (message[i] == APPLIED || message[i] == PASSED_ON)
#define ONE_END (ends <= 1)
#define NO_STALE_WRITE (!stale)
#define ACCEPTED_STOP_WINS (!(accepted && FINAL) || status == CANCELLED)
#define NOTHING_OLDER_STARTS (!(older_than_stop[0] && TAKEN(0)) && !(older_than_stop[1] && TAKEN(1)))
#define ALL_TAKEN_AT_END (!FINAL || (message[0] != WAITS && message[1] != WAITS))
#define SUPERSEDED_GOES_ON (!(FINAL && reason == SUPERSEDED) || message[0] == APPLIED)
#define ONE_SUCCESSOR (starts <= 1 && (starts == 0 || FINAL))
#define PARKED_MEANS_OPEN ((status == WAITING) == (question == OPEN))
#define LIMIT_HOLDS (!decided_late)
#define ONE_DECISION (decisions <= 1)
#define ASKED_ONCE (questions <= 1)
#define END_CLOSES_QUESTION (!FINAL || (question != OPEN && question != DECIDED))
#define CAUSE_CHANGES_ONCE (causes <= 2)
#define EXHAUSTED_BY_CRASHES (reason != EXHAUSTED || crashes == CRASHES)

ltl safe { [] (ONE_END && NO_STALE_WRITE && ACCEPTED_STOP_WINS && NOTHING_OLDER_STARTS && ALL_TAKEN_AT_END
               && SUPERSEDED_GOES_ON && ONE_SUCCESSOR && PARKED_MEANS_OPEN && LIMIT_HOLDS && ONE_DECISION && ASKED_ONCE
               && END_CLOSES_QUESTION && CAUSE_CHANGES_ONCE && EXHAUSTED_BY_CRASHES) }
ltl one_end { [] ONE_END }
ltl no_stale_write { [] NO_STALE_WRITE }
ltl accepted_stop_wins { [] ACCEPTED_STOP_WINS }
ltl nothing_older_starts { [] NOTHING_OLDER_STARTS }
ltl all_taken_at_end { [] ALL_TAKEN_AT_END }
ltl parked_means_open { [] PARKED_MEANS_OPEN }
ltl limit_holds { [] LIMIT_HOLDS }
ltl one_decision { [] ONE_DECISION }
ltl asked_once { [] ASKED_ONCE }
ltl end_closes_question { [] END_CLOSES_QUESTION }

/* What must come to pass, where every process that can go on does so at last. */
ltl stop_ends { [] ((accepted || status == CANCELLING) -> <> FINAL) }
ltl decision_is_used { [] (question == DECIDED -> <> (question == CONSUMED || question == VOID)) }
ltl comes_to_rest { <> [] (FINAL || status == WAITING) }

#ifdef REACH  /* to be broken: the model does come to this status */
ltl unreached { [] (status != REACH) }
#endif
