; The thread pool of parallel loops. An object that has such a loop carries this text, with the system calls of its
; architecture in place of $names; the weak symbols are one copy in a process (docs/abi.md).
;
; A job is a body, a context, and indices in chunks, of which every thread has a range of its own: neighbouring chunks,
; each range with a counter that hands them out. Who is done with its range helps with the others. So a thread works on
; the same part of the data in every job of as many chunks, while it is in that core's caches: a line that another core
; wrote takes several times as long. A job is open while it may be joined: the caller opens it, works on it, closes it,
; and waits only for the workers that are inside, never for one that is still asleep or has no CPU. A worker goes inside
; before it looks whether the job is open, and the caller closes the job before it looks who is inside, all sequentially
; consistent: so either the worker finds it closed or the caller waits.
;
; All state is in one page that the kernel wipes in a forked child, where none of the workers are: zeros are the state of
; a new pool. What a program has set lives on in the globals.

%mlcc_pool = type {
  i32, [15 x i32],                ; 0 turn: changes with every job; workers wait for that
  i32, [15 x i32],                ; 2 open: whether the job may be joined; 3.0 the CPU of its caller, -1 if unknown
  i32, i32, [14 x i32],           ; 4 inside: workers that may be at the job; 5 waiting: the caller sleeps until none is
  i64, [7 x i64],                 ; 7 ranges of chunks that the job has
  i32, i32, [14 x i32],           ; 9 tickets given to workers that join; 10 places there are
  ptr, ptr, i64, i64, i64, i64,   ; 12 body, 13 context, 14 indices, 15 in a chunk, 16 chunks, 17 failure
                                  ;    (the first chunk that failed << 32 | its code; -1: none)
  [2 x i64],                      ; 18.0 workers that have taken a slot; 18.1 whether affinities may not be changed here
  i32, i32, i32, i32, i32,        ; 19 busy, 20 workers, 21 asleep, 22 threads by default, 23 process (0: wiped by fork)
  i64,                            ; 24 when there was a short job last that found all workers asleep
  [$slots x { i32, i32 }],        ; 25 of a worker: its thread id, and 0: awake; 1: asleep; -1: its affinity is being
                                  ;    changed; -2 - n: not to wake on CPU n (the last slot is nobody's)
  [$slots x [16 x i64]],          ; 26 of a worker that is not to wake on a CPU: its affinity before
  [$ranges x [8 x i64]]           ; 27 of a range: the chunk to be handed out next (a line each)
}

@mlcc_pool_v1_page = weak global ptr null, align 8
@mlcc_pool_v1_threads = weak global i32 0, align 4
@mlcc_pool_v1_parallel_for = weak global ptr null, align 8
@mlcc_pool_v1_shared_run = weak global ptr null, align 8
@mlcc_pool_variable = private unnamed_addr constant [17 x i8] c"MLCC_NUM_THREADS\00", align 1

declare extern_weak i32 @pthread_create(ptr, ptr, ptr, ptr)
declare extern_weak i32 @sched_getcpu()
declare i64 @syscall(i64, ...)
declare ptr @getenv(ptr)
declare i32 @clock_gettime(i32, ptr)
declare i64 @llvm.ctpop.i64(i64)
declare i64 @llvm.abs.i64(i64, i1)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
$pause_declaration

; `mlcc_pool_v1_run_work` for callers that know no time: a piece of `grain` indices is taken for 4 us of work. A grain that
; is negative (or 0) means as many indices, whatever work they are: that is long.
define weak i32 @mlcc_pool_v1_run(ptr %body, ptr %context, i64 %n, i64 %grain) $attributes {
entry:
  %size = call i64 @llvm.abs.i64(i64 %grain, i1 false)
  %least = call i64 @llvm.smax.i64(i64 %size, i64 1)
  %estimated = icmp sgt i64 %grain, 0
  %amount = sdiv i64 %n, %least
  %bounded = call i64 @llvm.smin.i64(i64 %amount, i64 1000000)
  %guess = mul i64 %bounded, 4000
  %work = select i1 %estimated, i64 %guess, i64 9223372036854775807
  %code = call i32 @mlcc_pool_v1_run_work(ptr %body, ptr %context, i64 %n, i64 %least, i64 %work)
  ret i32 %code
}

; Run `body(context, begin, end)` over 0 .. n - 1, in pieces of at least `grain` indices, which any thread may run in any
; order. `work` is how many nanoseconds one thread would take, by estimate. 0, or the error of the first piece that failed.
; A call while another is under way runs on its own thread.
;
; With t threads there are 16 t to 32 t pieces where `grain` allows as many. Where it allows fewer than 4 t, there are as many
; for each thread: the last of unequal rounds would leave threads without work.
;
; Sleeping workers are woken for $long ns of work or more: the wake takes the caller 7 to 20 us, and the workers begin some
; ten later. A shorter job that finds all of them asleep runs alone, unless another such job came shortly
; before: then there are many, and the workers stay awake between them.
define weak i32 @mlcc_pool_v1_run_work(ptr %body, ptr %context, i64 %n, i64 %grain, i64 %work) $attributes {
entry:
  %time = alloca [2 x i64], align 8
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %any, label %nothing
nothing:
  ret i32 0
any:
  %least = call i64 @llvm.smax.i64(i64 %grain, i64 1)
  %other = load atomic ptr, ptr @mlcc_pool_v1_parallel_for monotonic, align 8
  %own = icmp eq ptr %other, null
  br i1 %own, label %which, label %foreign
which:
  %shared = load atomic ptr, ptr @mlcc_pool_v1_shared_run monotonic, align 8
  %here = icmp eq ptr %shared, null
  br i1 %here, label %measure, label %elsewhere
elsewhere:
  %shared.code = call i32 %shared(ptr %body, ptr %context, i64 %n, i64 %least, i64 %work)
  ret i32 %shared.code
foreign:
  %foreign.code = call i32 %other(ptr %body, ptr %context, i64 %n, i64 %least)
  ret i32 %foreign.code
measure:
  %divisible = icmp sgt i64 %n, %least
  br i1 %divisible, label %find, label %alone
find:
  %page = call ptr @mlcc_pool_page()
  %there = icmp ne ptr %page, null
  br i1 %there, label %ask, label %alone
ask:
  %threads = call i32 @mlcc_pool_count(ptr %page)
  %several = icmp sgt i32 %threads, 1
  br i1 %several, label %take, label %alone
take:
  %busy.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 19
  %taken = cmpxchg ptr %busy.p, i32 0, i32 1 acquire monotonic
  %free = extractvalue { i32, i1 } %taken, 1
  br i1 %free, label %divide, label %alone
divide:
  %wide = zext i32 %threads to i64
  %pieces = shl i64 %wide, 4
  %fair = shl i64 %wide, 2
  %possible = udiv i64 %n, %least
  %n.less = sub i64 %n, 1
  %plenty = icmp uge i64 %possible, %pieces
  %even = udiv i64 %n, %pieces
  %enough = icmp uge i64 %possible, %fair
  %single = icmp eq i64 %least, 1
  %balanced = or i1 %enough, %single
  %rounds = udiv i64 %possible, %wide
  %scarce = icmp eq i64 %rounds, 0
  %in.rounds = mul i64 %rounds, %wide
  %equal = select i1 %scarce, i64 1, i64 %in.rounds
  %each.less = udiv i64 %n.less, %equal
  %each = add i64 %each.less, 1
  %of.rounds = select i1 %scarce, i64 %least, i64 %each
  %of.few = select i1 %balanced, i64 %least, i64 %of.rounds
  %chunk = select i1 %plenty, i64 %even, i64 %of.few
  %chunks.less = udiv i64 %n.less, %chunk
  %chunks = add i64 %chunks.less, 1
  %few = icmp ult i64 %chunks, %wide
  %most = select i1 %few, i64 %chunks, i64 %wide
  %most.narrow = trunc i64 %most to i32
  %helpers = sub i32 %most.narrow, 1
  %workers.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 20
  %workers = load i32, ptr %workers.p, align 4
  %asleep.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 21
  %resting = load atomic i32, ptr %asleep.p monotonic, align 4
  %cold = icmp sge i32 %resting, %workers
  %short = icmp slt i64 %work, $long
  %doubtful = and i1 %cold, %short
  br i1 %doubtful, label %doubt, label %man
doubt:
  %c = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest.p = getelementptr inbounds i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.p, align 8
  %billions = mul i64 %seconds, 1000000000
  %now = add i64 %billions, %rest
  %last.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 24
  %last = load i64, ptr %last.p, align 8
  store i64 %now, ptr %last.p, align 8
  %gap = sub i64 %now, %last
  %stream = icmp ult i64 %gap, 500000
  br i1 %stream, label %man, label %give.up
man:
  %crew = call i32 @mlcc_pool_crew(ptr %page, i32 %helpers)
  %many = icmp sgt i32 %crew, 0
  br i1 %many, label %post, label %give.up
give.up:
  store atomic i32 0, ptr %busy.p release, align 4
  br label %alone
post:
  %tickets.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 9
  %places.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 10
  %ranges.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 7
  %body.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 12
  %context.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 13
  %n.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 14
  %chunk.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 15
  %chunks.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 16
  %failure.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 17
  store ptr %body, ptr %body.p, align 8
  store ptr %context, ptr %context.p, align 8
  store i64 %n, ptr %n.p, align 8
  store i64 %chunk, ptr %chunk.p, align 8
  store i64 %chunks, ptr %chunks.p, align 8
  store atomic i64 -1, ptr %failure.p monotonic, align 8
  store atomic i32 0, ptr %tickets.p monotonic, align 4
  store i32 %helpers, ptr %places.p, align 4
  %ranges = call i64 @llvm.smin.i64(i64 %most, i64 $ranges)
  store i64 %ranges, ptr %ranges.p, align 8
  br label %lay
lay:
  %r = phi i64 [ 0, %post ], [ %r.next, %lay ]
  %r.first = mul i64 %r, %chunks
  %r.begin = udiv i64 %r.first, %ranges
  %counter.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 27, i64 %r, i64 0
  store atomic i64 %r.begin, ptr %counter.p monotonic, align 8
  %r.next = add i64 %r, 1
  %r.more = icmp ult i64 %r.next, %ranges
  br i1 %r.more, label %lay, label %admit
admit:
  %open.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 2
  %cpu = call i32 @mlcc_pool_cpu()
  call void @mlcc_pool_spread(ptr %page, i32 %cpu, i32 %helpers)
  %caller.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 3, i64 0
  store atomic i32 %cpu, ptr %caller.p monotonic, align 4
  store atomic i32 1, ptr %open.p seq_cst, align 4
  %turn.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 0
  %turn = atomicrmw add ptr %turn.p, i32 1 seq_cst
  %asleep = load atomic i32, ptr %asleep.p seq_cst, align 4
  %wake = icmp sgt i32 %asleep, 0
  br i1 %wake, label %rouse, label %share
rouse:
  %roused = call i64 (i64, ...) @syscall(i64 $futex, ptr %turn.p, i32 129, i32 %helpers)
  br label %share
share:
  call void @mlcc_pool_drain(ptr %page, i64 0)
  store atomic i32 0, ptr %open.p seq_cst, align 4
  call void @mlcc_pool_join(ptr %page)
  %failure = load atomic i64, ptr %failure.p monotonic, align 8
  store atomic i32 0, ptr %busy.p release, align 4
  %good = icmp eq i64 %failure, -1
  %failure.code = trunc i64 %failure to i32
  %code = select i1 %good, i32 0, i32 %failure.code
  ret i32 %code
alone:
  %alone.code = call i32 %body(ptr %context, i64 0, i64 %n)
  ret i32 %alone.code
}

; Have the program's own function in place of `mlcc_pool_v1_run`; null for that again.
define weak void @mlcc_pool_v1_set_parallel_for(ptr %function) $attributes {
entry:
  store atomic ptr %function, ptr @mlcc_pool_v1_parallel_for monotonic, align 8
  ret void
}

; Have another pool's `mlcc_pool_v1_run_work` in place of this one's; null for its own again. So two copies of the pool in
; one process, which no linker could make one, have one set of workers.
define weak void @mlcc_pool_v1_set_shared_run(ptr %function) $attributes {
entry:
  store atomic ptr %function, ptr @mlcc_pool_v1_shared_run monotonic, align 8
  ret void
}

; Use so many threads, the caller's among them; 0: as many as MLCC_NUM_THREADS and the affinity of the process say.
define weak void @mlcc_pool_v1_set_num_threads(i32 %count) $attributes {
entry:
  %negative = icmp slt i32 %count, 0
  %wanted = select i1 %negative, i32 0, i32 %count
  store atomic i32 %wanted, ptr @mlcc_pool_v1_threads monotonic, align 4
  ret void
}

; The threads that a large enough loop would use.
define weak i32 @mlcc_pool_v1_get_num_threads() $attributes {
entry:
  %page = call ptr @mlcc_pool_page()
  %there = icmp ne ptr %page, null
  br i1 %there, label %count, label %one
count:
  %threads = call i32 @mlcc_pool_count(ptr %page)
  ret i32 %threads
one:
  ret i32 1
}

; Work on chunks until all are handed out: those of the range `home` first, then of the ranges after it. After an error no
; chunk behind that one is begun, and all before it are: so the least number that fails is that of the chunk where a
; serial loop would have failed first.
define internal void @mlcc_pool_drain(ptr %page, i64 %home) $attributes {
entry:
  %ranges.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 7
  %body.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 12
  %context.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 13
  %n.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 14
  %chunk.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 15
  %chunks.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 16
  %failure.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 17
  %ranges = load i64, ptr %ranges.p, align 8
  %body = load ptr, ptr %body.p, align 8
  %context = load ptr, ptr %context.p, align 8
  %n = load i64, ptr %n.p, align 8
  %chunk = load i64, ptr %chunk.p, align 8
  %chunks = load i64, ptr %chunks.p, align 8
  br label %range
range:
  %turn = phi i64 [ 0, %entry ], [ %turn.next, %next ]
  %place = add i64 %home, %turn
  %r = urem i64 %place, %ranges
  %r.next = add i64 %r, 1
  %r.chunks = mul i64 %r.next, %chunks
  %r.end = udiv i64 %r.chunks, %ranges
  %counter.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 27, i64 %r, i64 0
  br label %look
look:
  %seen = load atomic i64, ptr %counter.p monotonic, align 8
  %some = icmp ult i64 %seen, %r.end
  br i1 %some, label %take, label %next
take:
  %number = atomicrmw add ptr %counter.p, i64 1 acq_rel
  %left = icmp ult i64 %number, %r.end
  br i1 %left, label %check, label %next
check:
  %failure = load atomic i64, ptr %failure.p monotonic, align 8
  %failed.chunk = lshr i64 %failure, 32
  %behind = icmp ugt i64 %number, %failed.chunk
  br i1 %behind, label %next, label %work
work:
  %begin = mul i64 %number, %chunk
  %room = sub i64 %n, %begin
  %full = icmp ult i64 %chunk, %room
  %count = select i1 %full, i64 %chunk, i64 %room
  %end = add i64 %begin, %count
  %code = call i32 %body(ptr %context, i64 %begin, i64 %end)
  %good = icmp eq i32 %code, 0
  br i1 %good, label %look, label %failed
failed:
  %number.high = shl i64 %number, 32
  %code.wide = zext i32 %code to i64
  %own.failure = or i64 %number.high, %code.wide
  %f = atomicrmw umin ptr %failure.p, i64 %own.failure acq_rel
  br label %next
next:
  %turn.next = add i64 %turn, 1
  %more = icmp ult i64 %turn.next, %ranges
  br i1 %more, label %range, label %done
done:
  ret void
}

; Wait until no worker is inside: spin, then sleep. At first without a yield: a worker that has its CPU is soon done, and
; on a busy machine who gives away the CPU loses it for milliseconds.
define internal void @mlcc_pool_join(ptr %page) $attributes {
entry:
  %inside.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 4
  %waiting.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 5
  br label %spin
spin:
  %spins = phi i32 [ 0, %entry ], [ %spins.next, %pause ]
  %inside = load atomic i32, ptr %inside.p seq_cst, align 4
  %empty = icmp eq i32 %inside, 0
  br i1 %empty, label %done, label %go.on
go.on:
  %patient = icmp ult i32 %spins, 2000
  br i1 %patient, label %pause, label %sleep
pause:
  %early = icmp ult i32 %spins, 1000
  %turns = select i1 %early, i32 0, i32 %spins
  call void @mlcc_pool_pause(i32 %turns)
  %spins.next = add i32 %spins, 1
  br label %spin
sleep:
  store atomic i32 1, ptr %waiting.p seq_cst, align 4
  br label %look
look:
  %still = load atomic i32, ptr %inside.p seq_cst, align 4
  %left = icmp eq i32 %still, 0
  br i1 %left, label %awake, label %wait
wait:
  %w = call i64 (i64, ...) @syscall(i64 $futex, ptr %inside.p, i32 128, i32 %still, ptr null)
  br label %look
awake:
  store atomic i32 0, ptr %waiting.p monotonic, align 4
  br label %done
done:
  ret void
}

; Every 128th turn of a spinning loop gives the CPU away: whoever is waited for may be queued behind this very thread.
define internal void @mlcc_pool_pause(i32 %spins) $attributes {
entry:
  %low = and i32 %spins, 127
  %due = icmp eq i32 %low, 127
  br i1 %due, label %yield, label %rest
yield:
  %y = call i64 (i64, ...) @syscall(i64 $sched_yield)
  ret void
rest:
  $pause
  ret void
}

; The CPU that this thread runs on; -1 where the C library does not tell.
define internal i32 @mlcc_pool_cpu() $attributes {
entry:
  %missing = icmp eq ptr @sched_getcpu, null
  br i1 %missing, label %unknown, label %ask
ask:
  %cpu = call i32 @sched_getcpu()
  ret i32 %cpu
unknown:
  ret i32 -1
}

; Forbid sleeping workers to wake on the caller's CPU. The kernel may wake a thread beside its waker when the others were
; busy of late; there it would wait until the caller, which is about to work, is done, or the next balancing is due,
; milliseconds later. A worker has its affinity back as soon as it is awake.
;
; None is left asleep with less than its affinity: it is done only for jobs that wake all workers, and before the job has
; its turn, so that a worker that is about to sleep finds the turn changed. Nor is it done for more than a few workers, or
; where they have more CPUs than they need: there the kernel finds an idle one.
define internal void @mlcc_pool_spread(ptr %page, i32 %cpu, i32 %helpers) $attributes {
entry:
  %mask = alloca [16 x i64], align 8
  %asleep.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 21
  %asleep = load atomic i32, ptr %asleep.p monotonic, align 4
  %some = icmp sgt i32 %asleep, 0
  %known = icmp sge i32 %cpu, 0
  %workers.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 20
  %workers = load i32, ptr %workers.p, align 4
  %small = icmp sle i32 %workers, $last_slot
  %all = icmp sge i32 %helpers, %workers
  %refused.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 18, i64 1
  %refused = load atomic i64, ptr %refused.p monotonic, align 8
  %permitted = icmp eq i64 %refused, 0
  %need = and i1 %some, %known
  %woken = and i1 %small, %all
  %sensible = and i1 %need, %woken
  %go = and i1 %sensible, %permitted
  br i1 %go, label %begin, label %done
begin:
  %mark = sub i32 -2, %cpu
  %threads = add i32 %workers, 1
  %threads.wide = zext i32 %threads to i64
  %cpu.wide = zext i32 %cpu to i64
  %word = lshr i64 %cpu.wide, 6
  %in.word = and i64 %cpu.wide, 63
  %bit = shl i64 1, %in.word
  br label %head
head:
  %i = phi i32 [ 0, %begin ], [ %i.next, %next ]
  %more = icmp slt i32 %i, %workers
  br i1 %more, label %try, label %done
try:
  %i.wide = zext i32 %i to i64
  %id.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 25, i64 %i.wide, i32 0
  %state.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 25, i64 %i.wide, i32 1
  %before.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 26, i64 %i.wide
  %claim = cmpxchg ptr %state.p, i32 1, i32 -1 seq_cst seq_cst
  %claimed = extractvalue { i32, i1 } %claim, 1
  br i1 %claimed, label %read, label %next
read:
  %id = load i32, ptr %id.p, align 4
  %bytes = call i64 (i64, ...) @syscall(i64 $sched_getaffinity, i32 %id, i64 128, ptr %before.p)
  %told = icmp sgt i64 %bytes, 0
  br i1 %told, label %measure, label %refuse
measure:
  %words = lshr i64 %bytes, 3
  br label %count
count:
  %w = phi i64 [ 0, %measure ], [ %w.next, %add ]
  %cpus = phi i64 [ 0, %measure ], [ %cpus.next, %add ]
  %rest = icmp ult i64 %w, %words
  br i1 %rest, label %add, label %counted
add:
  %w.p = getelementptr inbounds i64, ptr %before.p, i64 %w
  %w.bits = load i64, ptr %w.p, align 8
  %ones = call i64 @llvm.ctpop.i64(i64 %w.bits)
  %cpus.next = add i64 %cpus, %ones
  %copy.p = getelementptr inbounds i64, ptr %mask, i64 %w
  store i64 %w.bits, ptr %copy.p, align 8
  %w.next = add i64 %w, 1
  br label %count
counted:
  %several = icmp ugt i64 %cpus, 1
  %scarce = icmp ule i64 %cpus, %threads.wide
  %within = icmp ult i64 %word, %words
  %choice = and i1 %several, %scarce
  %able = and i1 %choice, %within
  br i1 %able, label %find, label %leave
find:
  %word.p = getelementptr inbounds i64, ptr %mask, i64 %word
  %old = load i64, ptr %word.p, align 8
  %at = and i64 %old, %bit
  %allowed = icmp ne i64 %at, 0
  br i1 %allowed, label %forbid, label %leave
forbid:
  %new = xor i64 %old, %bit
  store i64 %new, ptr %word.p, align 8
  %code = call i64 (i64, ...) @syscall(i64 $sched_setaffinity, i32 %id, i64 %bytes, ptr %mask)
  %good = icmp eq i64 %code, 0
  br i1 %good, label %forbidden, label %refuse
forbidden:
  store atomic i32 %mark, ptr %state.p seq_cst, align 4
  br label %next
refuse:
  store atomic i64 1, ptr %refused.p monotonic, align 8
  store atomic i32 1, ptr %state.p seq_cst, align 4
  br label %done
leave:
  store atomic i32 1, ptr %state.p seq_cst, align 4
  br label %next
next:
  %i.next = add i32 %i, 1
  br label %head
done:
  ret void
}

; A worker notes that it is awake, and takes back the affinity that it had before the caller forbade a CPU. If it is not
; the one that the caller left, the program has set another since: that stays.
define internal void @mlcc_pool_awake(ptr %page, i64 %slot) $attributes {
entry:
  %mask = alloca [16 x i64], align 8
  %state.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 25, i64 %slot, i32 1
  %before.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 26, i64 %slot
  br label %look
look:
  %woken = cmpxchg ptr %state.p, i32 1, i32 0 seq_cst seq_cst
  %undisturbed = extractvalue { i32, i1 } %woken, 1
  br i1 %undisturbed, label %done, label %disturbed
disturbed:
  %state = extractvalue { i32, i1 } %woken, 0
  %finished = icmp slt i32 %state, -1
  br i1 %finished, label %read, label %wait
wait:
  %y = call i64 (i64, ...) @syscall(i64 $sched_yield)
  br label %look
read:
  store atomic i32 0, ptr %state.p seq_cst, align 4
  %bytes = call i64 (i64, ...) @syscall(i64 $sched_getaffinity, i32 0, i64 128, ptr %mask)
  %told = icmp sgt i64 %bytes, 0
  br i1 %told, label %add, label %refuse
add:
  %cpu = sub i32 -2, %state
  %cpu.wide = zext i32 %cpu to i64
  %word = lshr i64 %cpu.wide, 6
  %word.p = getelementptr inbounds i64, ptr %mask, i64 %word
  %in.word = and i64 %cpu.wide, 63
  %bit = shl i64 1, %in.word
  %old = load i64, ptr %word.p, align 8
  %new = xor i64 %old, %bit
  store i64 %new, ptr %word.p, align 8
  %words = lshr i64 %bytes, 3
  br label %compare
compare:
  %w = phi i64 [ 0, %add ], [ %w.next, %equal ]
  %more = icmp ult i64 %w, %words
  br i1 %more, label %one, label %restore
one:
  %w.p = getelementptr inbounds i64, ptr %mask, i64 %w
  %w.bits = load i64, ptr %w.p, align 8
  %b.p = getelementptr inbounds i64, ptr %before.p, i64 %w
  %b.bits = load i64, ptr %b.p, align 8
  %same = icmp eq i64 %w.bits, %b.bits
  br i1 %same, label %equal, label %done
equal:
  %w.next = add i64 %w, 1
  br label %compare
restore:
  %code = call i64 (i64, ...) @syscall(i64 $sched_setaffinity, i32 0, i64 %bytes, ptr %before.p)
  %good = icmp eq i64 %code, 0
  br i1 %good, label %done, label %refuse
refuse:
  %refused.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 18, i64 1
  store atomic i64 1, ptr %refused.p monotonic, align 8
  br label %done
done:
  ret void
}

; A worker: waits for jobs and takes part in them. One that finds itself on the caller's CPU is of no use there and goes
; to sleep, so that the next job wakes it elsewhere. Handlers of faults have a stack of their own (`sigaltstack`) at the
; beginning of the worker's, so that they run when it overflows.
define internal ptr @mlcc_pool_worker(ptr %page) $attributes {
entry:
  %handlers = alloca [$handler_stack x i8], align 16
  %stack = alloca [3 x i64], align 8
  %size.p = getelementptr inbounds i64, ptr %stack, i64 2
  store ptr %handlers, ptr %stack, align 8
  %flags.p = getelementptr inbounds i64, ptr %stack, i64 1
  store i64 0, ptr %flags.p, align 8
  store i64 $handler_stack, ptr %size.p, align 8
  %alternate = call i64 (i64, ...) @syscall(i64 $sigaltstack, ptr %stack, ptr null)
  %turn.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 0
  %open.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 2
  %inside.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 4
  %waiting.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 5
  %tickets.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 9
  %places.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 10
  %asleep.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 21
  %caller.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 3, i64 0
  %slots.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 18, i64 0
  %number = atomicrmw add ptr %slots.p, i64 1 monotonic
  %home = add i64 %number, 1
  %has.slot = icmp ult i64 %number, $last_slot
  %slot = select i1 %has.slot, i64 %number, i64 $last_slot
  %id.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 25, i64 %slot, i32 0
  %state.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 25, i64 %slot, i32 1
  %id = call i64 (i64, ...) @syscall(i64 $gettid)
  %id.narrow = trunc i64 %id to i32
  store i32 %id.narrow, ptr %id.p, align 4
  br label %spin
spin:
  %seen = phi i32 [ 0, %entry ], [ %seen, %pause ], [ %seen, %rest ], [ %seen, %rise ], [ %turn, %leave ], [ %turn, %call.back ], [ %turn, %wake ]
  %spins = phi i32 [ 0, %entry ], [ %spins.next, %pause ], [ 0, %rest ], [ 0, %rise ], [ 0, %leave ], [ 0, %call.back ], [ 0, %wake ]
  %turn = load atomic i32, ptr %turn.p seq_cst, align 4
  %same = icmp eq i32 %turn, %seen
  br i1 %same, label %idle, label %enter
idle:
  %patient = icmp ult i32 %spins, 4000
  br i1 %patient, label %look, label %sleep
look:
  %low = and i32 %spins, 127
  %due = icmp eq i32 %low, 0
  br i1 %due, label %compare, label %pause
compare:
  %at = call i32 @mlcc_pool_cpu()
  %caller = load atomic i32, ptr %caller.p monotonic, align 4
  %here = icmp eq i32 %at, %caller
  %certain = icmp sge i32 %at, 0
  %useless = and i1 %here, %certain
  br i1 %useless, label %sleep, label %pause
pause:
  %early = icmp ult i32 %spins, 1000
  %turns = select i1 %early, i32 0, i32 %spins
  call void @mlcc_pool_pause(i32 %turns)
  %spins.next = add i32 %spins, 1
  br label %spin
sleep:
  br i1 %has.slot, label %note, label %rest
note:
  store atomic i32 1, ptr %state.p seq_cst, align 4
  br label %rest
rest:
  %a = atomicrmw add ptr %asleep.p, i32 1 seq_cst
  %w = call i64 (i64, ...) @syscall(i64 $futex, ptr %turn.p, i32 128, i32 %seen, ptr null)
  %b = atomicrmw sub ptr %asleep.p, i32 1 seq_cst
  br i1 %has.slot, label %rise, label %spin
rise:
  call void @mlcc_pool_awake(ptr %page, i64 %slot)
  br label %spin
enter:
  %i = atomicrmw add ptr %inside.p, i32 1 seq_cst
  %open = load atomic i32, ptr %open.p seq_cst, align 4
  %is.open = icmp ne i32 %open, 0
  br i1 %is.open, label %join, label %leave
join:
  %ticket = atomicrmw add ptr %tickets.p, i32 1 acq_rel
  %places = load i32, ptr %places.p, align 4
  %has.place = icmp slt i32 %ticket, %places
  br i1 %has.place, label %work, label %leave
work:
  call void @mlcc_pool_drain(ptr %page, i64 %home)
  br label %leave
leave:
  %before = atomicrmw sub ptr %inside.p, i32 1 seq_cst
  %last = icmp eq i32 %before, 1
  br i1 %last, label %call.back, label %spin
call.back:
  %waiting = load atomic i32, ptr %waiting.p seq_cst, align 4
  %asked = icmp ne i32 %waiting, 0
  br i1 %asked, label %wake, label %spin
wake:
  %v = call i64 (i64, ...) @syscall(i64 $futex, ptr %inside.p, i32 129, i32 1)
  br label %spin
}

; Start workers until there are `wanted`; how many there are. They take no signals: those are the program's. Except faults
; (ILL, TRAP, ABRT, BUS, FPE, SEGV, SYS): blocked ones would end the process without a word from the program's handlers.
define internal i32 @mlcc_pool_crew(ptr %page, i32 %wanted) $attributes {
entry:
  %workers.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 20
  %workers = load i32, ptr %workers.p, align 4
  %enough = icmp sge i32 %workers, %wanted
  br i1 %enough, label %done, label %check
check:
  %missing = icmp eq ptr @pthread_create, null
  br i1 %missing, label %done, label %shield
shield:
  %every = alloca i64, align 8
  %mask = alloca i64, align 8
  %thread = alloca i64, align 8
  store i64 -1073743097, ptr %every, align 8
  %m = call i64 (i64, ...) @syscall(i64 $rt_sigprocmask, i32 2, ptr %every, ptr %mask, i64 8)
  br label %start
start:
  %now = phi i32 [ %workers, %shield ], [ %more, %started ]
  %code = call i32 @pthread_create(ptr %thread, ptr null, ptr @mlcc_pool_worker, ptr %page)
  %good = icmp eq i32 %code, 0
  br i1 %good, label %started, label %unshield
started:
  %more = add i32 %now, 1
  %all = icmp sge i32 %more, %wanted
  br i1 %all, label %unshield, label %start
unshield:
  %made = phi i32 [ %now, %start ], [ %more, %started ]
  store i32 %made, ptr %workers.p, align 4
  %u = call i64 (i64, ...) @syscall(i64 $rt_sigprocmask, i32 2, ptr %mask, ptr null, i64 8)
  br label %done
done:
  %there = phi i32 [ %workers, %entry ], [ %workers, %check ], [ %made, %unshield ]
  ret i32 %there
}

; How many threads to use: what was set, else what is found out once.
define internal i32 @mlcc_pool_count(ptr %page) $attributes {
entry:
  %set = load atomic i32, ptr @mlcc_pool_v1_threads monotonic, align 4
  %is.set = icmp sgt i32 %set, 0
  br i1 %is.set, label %done, label %default
default:
  %known.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 22
  %known = load atomic i32, ptr %known.p monotonic, align 4
  %is.known = icmp sgt i32 %known, 0
  br i1 %is.known, label %done, label %find
find:
  %found = call i32 @mlcc_pool_default()
  store atomic i32 %found, ptr %known.p monotonic, align 4
  br label %done
done:
  %count = phi i32 [ %set, %entry ], [ %known, %default ], [ %found, %find ]
  %high = icmp sgt i32 %count, $most
  %bounded = select i1 %high, i32 $most, i32 %count
  ret i32 %bounded
}

; The CPUs that the process may run on, or MLCC_NUM_THREADS if that is less; at least 1.
define internal i32 @mlcc_pool_default() $attributes {
entry:
  %set = alloca [128 x i64], align 8
  %bytes = call i64 (i64, ...) @syscall(i64 $sched_getaffinity, i32 0, i64 1024, ptr %set)
  %words = ashr i64 %bytes, 3
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %add ]
  %cpus = phi i64 [ 0, %entry ], [ %cpus.next, %add ]
  %more = icmp slt i64 %i, %words
  br i1 %more, label %add, label %counted
add:
  %word.p = getelementptr inbounds i64, ptr %set, i64 %i
  %word = load i64, ptr %word.p, align 8
  %ones = call i64 @llvm.ctpop.i64(i64 %word)
  %cpus.next = add i64 %cpus, %ones
  %i.next = add i64 %i, 1
  br label %head
counted:
  %none = icmp eq i64 %cpus, 0
  %available = select i1 %none, i64 1, i64 %cpus
  %text = call ptr @getenv(ptr @mlcc_pool_variable)
  %is.set = icmp ne ptr %text, null
  br i1 %is.set, label %digit, label %done
digit:
  %at = phi ptr [ %text, %counted ], [ %at.next, %accept ]
  %value = phi i64 [ 0, %counted ], [ %value.next, %accept ]
  %char = load i8, ptr %at, align 1
  %figure = sub i8 %char, 48
  %is.figure = icmp ult i8 %figure, 10
  %small = icmp ult i64 %value, 100000
  %accepted = and i1 %is.figure, %small
  br i1 %accepted, label %accept, label %read
accept:
  %tens = mul i64 %value, 10
  %one = zext i8 %figure to i64
  %value.next = add i64 %tens, %one
  %at.next = getelementptr inbounds i8, ptr %at, i64 1
  br label %digit
read:
  %ended = icmp eq i8 %char, 0
  %counts = icmp ne i64 %value, 0
  %valid = and i1 %ended, %counts
  %less = icmp ult i64 %value, %available
  %use = and i1 %valid, %less
  %chosen = select i1 %use, i64 %value, i64 %available
  br label %done
done:
  %count = phi i64 [ %available, %counted ], [ %chosen, %read ]
  %narrow = trunc i64 %count to i32
  ret i32 %narrow
}

; The page, made by whoever needs it first; null where it cannot be had now.
define internal ptr @mlcc_pool_page() $attributes {
entry:
  %page = load atomic ptr, ptr @mlcc_pool_v1_page acquire, align 8
  %there = icmp ne ptr %page, null
  br i1 %there, label %check, label %make
check:
  %process.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 23
  %process = load atomic i32, ptr %process.p acquire, align 4
  %wiped = icmp eq i32 %process, 0
  br i1 %wiped, label %ready, label %compare
ready:
  ret ptr %page
compare:
  %id = call i64 (i64, ...) @syscall(i64 $getpid)
  %own = trunc i64 %id to i32
  %mine = icmp eq i32 %process, %own
  br i1 %mine, label %ready, label %reset
reset:
  %claimed = cmpxchg ptr %process.p, i32 %process, i32 -1 acquire monotonic
  %first = extractvalue { i32, i1 } %claimed, 1
  %stale = icmp ne i32 %process, -1
  %go = and i1 %first, %stale
  br i1 %go, label %clear, label %none
clear:
  call void @llvm.memset.p0.i64(ptr %page, i8 0, i64 $process_offset, i1 false)
  %slots.p = getelementptr inbounds %mlcc_pool, ptr %page, i64 0, i32 25
  call void @llvm.memset.p0.i64(ptr %slots.p, i8 0, i64 $slot_bytes, i1 false)
  store atomic i32 %own, ptr %process.p release, align 4
  ret ptr %page
make:
  %new = call i64 (i64, ...) @syscall(i64 $mmap, ptr null, i64 4096, i32 3, i32 34, i32 -1, i64 0)
  %failed = icmp eq i64 %new, -1
  br i1 %failed, label %none, label %mark
mark:
  %new.page = inttoptr i64 %new to ptr
  %advice = call i64 (i64, ...) @syscall(i64 $madvise, ptr %new.page, i64 4096, i32 18)
  %refused = icmp ne i64 %advice, 0
  br i1 %refused, label %note, label %publish
note:
  %this = call i64 (i64, ...) @syscall(i64 $getpid)
  %this.narrow = trunc i64 %this to i32
  %noted.p = getelementptr inbounds %mlcc_pool, ptr %new.page, i64 0, i32 23
  store i32 %this.narrow, ptr %noted.p, align 4
  br label %publish
publish:
  %race = cmpxchg ptr @mlcc_pool_v1_page, ptr null, ptr %new.page acq_rel acquire
  %won = extractvalue { ptr, i1 } %race, 1
  br i1 %won, label %give, label %drop
give:
  ret ptr %new.page
drop:
  %current = extractvalue { ptr, i1 } %race, 0
  %d = call i64 (i64, ...) @syscall(i64 $munmap, ptr %new.page, i64 4096)
  ret ptr %current
none:
  ret ptr null
}
