; Shadow memory of checked kernels: who touched what last. A cell stands for one element, and has three marks: of the
; last write, and of two reads by threads that nothing orders. A mark is {thread + 1, clock, site}; threads are numbered
; through the grid. A clock counts the block's barriers (times 4096) and, since, the warp's and arrivals at barriers in
; memory. What is compared with it is the clock when the thread's warp last met (`synced`), and the table of `order.ll`.
; A mark of the copy engine has the sign bit and, in place of a clock, the barrier (8 bits) and the number of its phase.

define internal i1 @mlcc_emulate_known(ptr %report, i32 %thread, i32 %column, i32 %what) $attributes {
  ; does a thread's row say more than `what`
entry:
  %at_table = getelementptr i64, ptr %report, i64 $order
  %table = load ptr, ptr %at_table
  %none = icmp eq ptr %table, null
  br i1 %none, label %no, label %look
look:
  %row = zext i32 %thread to i64
  %entry_at = call ptr @mlcc_emulate_row(ptr %report, i64 %row)
  %wide = zext i32 %column to i64
  %at = getelementptr i32, ptr %entry_at, i64 %wide
  %value = load i32, ptr %at
  %known = icmp ugt i32 %value, %what
  ret i1 %known
no:
  ret i1 false
}

define internal i1 @mlcc_emulate_apart(ptr %report, ptr %mark, i32 %me, i32 %synced, i32 %threads) $attributes {
  ; nothing orders what `mark` says before what thread `me` does now
entry:
  %other = load i32, ptr %mark
  %none = icmp eq i32 %other, 0
  %own = icmp eq i32 %other, %me
  %skip = or i1 %none, %own
  br i1 %skip, label %no, label %look
look:
  %who = and i32 %other, 2147483647
  %a = sub i32 %who, 1
  %b = sub i32 %me, 1
  %block_a = udiv i32 %a, %threads
  %block_b = udiv i32 %b, %threads
  %same_block = icmp eq i32 %block_a, %block_b
  br i1 %same_block, label %clocks, label %yes
clocks:
  %at = getelementptr i32, ptr %mark, i64 1
  %then = load i32, ptr %at
  %in_a = urem i32 %a, %threads
  %in_b = urem i32 %b, %threads
  %engine = icmp slt i32 %other, 0
  br i1 %engine, label %copied, label %epochs
copied:
  %barrier = lshr i32 %then, 24
  %phase = and i32 %then, 16777215
  %column = add i32 %threads, %barrier
  %waited = call i1 @mlcc_emulate_known(ptr %report, i32 %in_b, i32 %column, i32 %phase)
  br i1 %waited, label %no, label %yes
epochs:
  %epoch_a = lshr i32 %then, 12
  %epoch_b = lshr i32 %synced, 12
  %before = icmp ult i32 %epoch_a, %epoch_b
  br i1 %before, label %no, label %warps
warps:
  %warp_a = lshr i32 %in_a, 5
  %warp_b = lshr i32 %in_b, 5
  %same_warp = icmp eq i32 %warp_a, %warp_b
  %sooner = icmp ult i32 %then, %synced
  %ordered = and i1 %same_warp, %sooner
  br i1 %ordered, label %no, label %met
met:
  %heard = call i1 @mlcc_emulate_known(ptr %report, i32 %in_b, i32 %in_a, i32 %then)
  br i1 %heard, label %no, label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

define internal void @mlcc_emulate_mark(ptr %mark, i32 %me, i32 %clock, i32 %site) $attributes {
  %at_clock = getelementptr i32, ptr %mark, i64 1
  %at_site = getelementptr i32, ptr %mark, i64 2
  store i32 %me, ptr %mark
  store i32 %clock, ptr %at_clock
  store i32 %site, ptr %at_site
  ret void
}

define internal void @mlcc_emulate_tell(ptr %report, i32 %kind, i32 %site, i32 %me, i64 %index, i32 %other_site, i32 %other) $cold {
  ; report the first of each kind and pair of sites
entry:
  %at_seen = getelementptr i64, ptr %report, i64 $seen
  %at_sites = getelementptr i64, ptr %report, i64 $sites
  %seen = load ptr, ptr %at_seen
  %sites = load i64, ptr %at_sites
  %wide_kind = zext i32 %kind to i64
  %wide_site = zext i32 %site to i64
  %wide_other = zext i32 %other_site to i64
  %plane = mul i64 %wide_kind, %sites
  %row = add i64 %plane, %wide_site
  %line = mul i64 %row, %sites
  %cell = add i64 %line, %wide_other
  %flag = getelementptr i8, ptr %seen, i64 %cell
  %before = load i8, ptr %flag
  %known = icmp ne i8 %before, 0
  br i1 %known, label %done, label %new
new:
  store i8 1, ptr %flag
  %notify = load ptr, ptr %report
  call void %notify(i32 %kind, i32 %site, i32 %me, i64 %index, i32 %other_site, i32 %other)
  br label %done
done:
  ret void
}

define internal void @mlcc_emulate_race(ptr %report, i32 %kind, ptr %mark, i64 %index, i32 %me, i32 %site) $cold {
  %other = load i32, ptr %mark
  %at_site = getelementptr i32, ptr %mark, i64 2
  %other_site = load i32, ptr %at_site
  call void @mlcc_emulate_tell(ptr %report, i32 %kind, i32 %site, i32 %me, i64 %index, i32 %other_site, i32 %other)
  ret void
}

define internal void @mlcc_emulate_read(ptr %report, ptr %cells, i64 %first, i64 %count, i32 %me, i32 %synced, i32 %clock, i32 %site, i32 %threads, i1 %needs_write) $slow {
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %latch ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %body, label %done
body:
  %index = add i64 %first, %k
  %at = mul i64 %index, 9
  %writer = getelementptr i32, ptr %cells, i64 %at
  %at_one = add i64 %at, 3
  %one = getelementptr i32, ptr %cells, i64 %at_one
  %at_two = add i64 %at, 6
  %two = getelementptr i32, ptr %cells, i64 %at_two
  %wrote = load i32, ptr %writer
  %unwritten = icmp eq i32 %wrote, 0
  %bad = and i1 %unwritten, %needs_write
  br i1 %bad, label %unset, label %set
unset:
  call void @mlcc_emulate_race(ptr %report, i32 3, ptr %writer, i64 %index, i32 %me, i32 %site)
  br label %set
set:
  %race = call i1 @mlcc_emulate_apart(ptr %report, ptr %writer, i32 %me, i32 %synced, i32 %threads)
  br i1 %race, label %racing, label %readers
racing:
  call void @mlcc_emulate_race(ptr %report, i32 2, ptr %writer, i64 %index, i32 %me, i32 %site)
  br label %readers
readers:
  %apart_one = call i1 @mlcc_emulate_apart(ptr %report, ptr %one, i32 %me, i32 %synced, i32 %threads)
  br i1 %apart_one, label %second, label %first_mark
first_mark:
  call void @mlcc_emulate_mark(ptr %one, i32 %me, i32 %clock, i32 %site)
  br label %latch
second:
  %apart_two = call i1 @mlcc_emulate_apart(ptr %report, ptr %two, i32 %me, i32 %synced, i32 %threads)
  br i1 %apart_two, label %crowd, label %second_mark
crowd:
  ; two readers of one block are no more than one to a reader of another
  %r1 = load i32, ptr %one
  %r2 = load i32, ptr %two
  %n1 = sub i32 %r1, 1
  %n2 = sub i32 %r2, 1
  %n3 = sub i32 %me, 1
  %b1 = udiv i32 %n1, %threads
  %b2 = udiv i32 %n2, %threads
  %b3 = udiv i32 %n3, %threads
  %pair = icmp eq i32 %b1, %b2
  %new = icmp ne i32 %b1, %b3
  %take = and i1 %pair, %new
  br i1 %take, label %second_mark, label %latch
second_mark:
  call void @mlcc_emulate_mark(ptr %two, i32 %me, i32 %clock, i32 %site)
  br label %latch
latch:
  %next = add i64 %k, 1
  br label %head
done:
  ret void
}

define internal void @mlcc_emulate_write(ptr %report, ptr %cells, i64 %first, i64 %count, i32 %me, i32 %synced, i32 %as, i32 %clock, i32 %site, i32 %threads, i1 %same) $slow {
  ; `same`: the memory holds the value already; several threads may write one value. The mark is of `as` at `clock`
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %latch ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %body, label %done
body:
  %index = add i64 %first, %k
  %at = mul i64 %index, 9
  %writer = getelementptr i32, ptr %cells, i64 %at
  %at_one = add i64 %at, 3
  %one = getelementptr i32, ptr %cells, i64 %at_one
  %at_two = add i64 %at, 6
  %two = getelementptr i32, ptr %cells, i64 %at_two
  %race = call i1 @mlcc_emulate_apart(ptr %report, ptr %writer, i32 %me, i32 %synced, i32 %threads)
  br i1 %race, label %writes, label %reads
writes:
  br i1 %same, label %latch, label %differs
differs:
  call void @mlcc_emulate_race(ptr %report, i32 0, ptr %writer, i64 %index, i32 %me, i32 %site)
  br label %reads
reads:
  %race_one = call i1 @mlcc_emulate_apart(ptr %report, ptr %one, i32 %me, i32 %synced, i32 %threads)
  br i1 %race_one, label %with_one, label %look_two
with_one:
  call void @mlcc_emulate_race(ptr %report, i32 1, ptr %one, i64 %index, i32 %me, i32 %site)
  br label %latch
look_two:
  %race_two = call i1 @mlcc_emulate_apart(ptr %report, ptr %two, i32 %me, i32 %synced, i32 %threads)
  br i1 %race_two, label %with_two, label %latch
with_two:
  call void @mlcc_emulate_race(ptr %report, i32 1, ptr %two, i64 %index, i32 %me, i32 %site)
  br label %latch
latch:
  call void @mlcc_emulate_mark(ptr %writer, i32 %as, i32 %clock, i32 %site)
  %next = add i64 %k, 1
  br label %head
done:
  ret void
}

define internal i64 @mlcc_emulate_block(ptr %report, i64 %place) $slow {
  ; begin the block at a place of the list of those to run, and choose the row of counts for its class
entry:
  %at_counts = getelementptr i64, ptr %report, i64 $counts
  %counts = load ptr, ptr %at_counts
  %untraced = icmp eq ptr %counts, null
  br i1 %untraced, label %number, label %choose
choose:
  %at_classes = getelementptr i64, ptr %report, i64 $classes
  %classes = load ptr, ptr %at_classes
  %class_at = getelementptr i64, ptr %classes, i64 %place
  %class = load i64, ptr %class_at
  %at_sites = getelementptr i64, ptr %report, i64 $sites
  %sites = load i64, ptr %at_sites
  %start = mul i64 %class, %sites
  %row = getelementptr i64, ptr %counts, i64 %start
  %at_row = getelementptr i64, ptr %report, i64 $class_counts
  store ptr %row, ptr %at_row
  br label %number
number:
  %at_blocks = getelementptr i64, ptr %report, i64 $blocks
  %blocks = load ptr, ptr %at_blocks
  %all = icmp eq ptr %blocks, null
  br i1 %all, label %same, label %listed
listed:
  %block_at = getelementptr i64, ptr %blocks, i64 %place
  %block = load i64, ptr %block_at
  ret i64 %block
same:
  ret i64 %place
}

define internal void @mlcc_emulate_trace(ptr %report, i32 %site, i32 %thread, i64 %key, i64 %offset, i64 %bytes, i64 %block, i64 %outer) $slow {
  ; count an access, and write it down if the hash of its block, warp and iteration is within the limit of its site
entry:
  %wide_site = zext i32 %site to i64
  %wide_thread = zext i32 %thread to i64
  %at_row = getelementptr i64, ptr %report, i64 $class_counts
  %row = load ptr, ptr %at_row
  %count_at = getelementptr i64, ptr %row, i64 %wide_site
  %count = load i64, ptr %count_at
  %counted = add i64 %count, 1
  store i64 %counted, ptr %count_at
  %of_block = mul i64 %block, $block_factor
  %warp = lshr i64 %wide_thread, 5
  %of_warp = mul i64 %warp, $warp_factor
  %of_both = add i64 %of_block, %of_warp
  %of_all = add i64 %of_both, %outer
  %hash = mul i64 %of_all, $hash_factor
  %at_limits = getelementptr i64, ptr %report, i64 $limits
  %limits = load ptr, ptr %at_limits
  %limit_at = getelementptr i64, ptr %limits, i64 %wide_site
  %at_room = getelementptr i64, ptr %report, i64 $room
  %at_used = getelementptr i64, ptr %report, i64 $used
  br label %choose
choose:
  %limit = load i64, ptr %limit_at
  %chosen = icmp ule i64 %hash, %limit
  br i1 %chosen, label %look, label %done
look:
  %used = load i64, ptr %at_used
  %room = load i64, ptr %at_room
  %fits = icmp slt i64 %used, %room
  br i1 %fits, label %add, label %full
full:
  %at_compact = getelementptr i64, ptr %report, i64 $compact
  %compact = load ptr, ptr %at_compact
  %stuck = icmp eq ptr %compact, null
  br i1 %stuck, label %done, label %thin
thin:
  call void %compact()
  br label %choose
add:
  %at_trace = getelementptr i64, ptr %report, i64 $trace
  %trace = load ptr, ptr %at_trace
  %at = mul i64 %used, 7
  %entry_at = getelementptr i64, ptr %trace, i64 %at
  store i64 %wide_site, ptr %entry_at
  %p1 = getelementptr i64, ptr %entry_at, i64 1
  store i64 %wide_thread, ptr %p1
  %p2 = getelementptr i64, ptr %entry_at, i64 2
  store i64 %key, ptr %p2
  %p3 = getelementptr i64, ptr %entry_at, i64 3
  store i64 %offset, ptr %p3
  %p4 = getelementptr i64, ptr %entry_at, i64 4
  store i64 %bytes, ptr %p4
  %p5 = getelementptr i64, ptr %entry_at, i64 5
  store i64 %block, ptr %p5
  %p6 = getelementptr i64, ptr %entry_at, i64 6
  store i64 %outer, ptr %p6
  %more = add i64 %used, 1
  store i64 %more, ptr %at_used
  br label %done
done:
  ret void
}
