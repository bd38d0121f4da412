; Barriers in shared memory, in 64 bits: arrivals pending (20), arrivals expected (20), bytes pending plus 2^20 (22), the
; parity of the phase (the last). A phase is complete when neither arrivals nor bytes are pending.

define internal void @mlcc_barrier_init(ptr %word, i64 %count) $attributes {
  %low = and i64 %count, 1048575
  %high = shl i64 %low, 20
  %both = or i64 %low, %high
  %value = or i64 %both, 1152921504606846976
  store i64 %value, ptr %word
  ret void
}

define internal i32 @mlcc_barrier_change(ptr %word, i64 %arrivals, i64 %bytes) $attributes {
  ; arrivals, and bytes that are waited for from now on; gives 1 if that completes the phase, 2 for what is no barrier, 3
  ; for more arrivals or bytes than there can be
entry:
  %old = load i64, ptr %word
  %pending = and i64 %old, 1048575
  %shifted = lshr i64 %old, 20
  %expected = and i64 %shifted, 1048575
  %more = lshr i64 %old, 40
  %biased = and i64 %more, 4194303
  %parity = and i64 %old, -9223372036854775808
  %none = icmp eq i64 %expected, 0
  br i1 %none, label %nothing, label %known
nothing:
  ret i32 2
known:
  %left = sub i64 %pending, %arrivals
  %sum = add i64 %biased, %bytes
  %over = icmp slt i64 %left, 0
  %few = icmp slt i64 %sum, 1
  %many = icmp sgt i64 %sum, 2097151
  %one = or i1 %over, %few
  %bad = or i1 %one, %many
  br i1 %bad, label %wrong, label %fits
wrong:
  ret i32 3
fits:
  %arrived = icmp eq i64 %left, 0
  %landed = icmp eq i64 %sum, 1048576
  %done = and i1 %arrived, %landed
  %next = select i1 %done, i64 %expected, i64 %left
  %flip = select i1 %done, i64 -9223372036854775808, i64 0
  %phase = xor i64 %parity, %flip
  %high = shl i64 %expected, 20
  %bits = shl i64 %sum, 40
  %a = or i64 %next, %high
  %b = or i64 %a, %bits
  %c = or i64 %b, %phase
  store i64 %c, ptr %word
  %result = zext i1 %done to i32
  ret i32 %result
}

define internal i1 @mlcc_barrier_ready(ptr %word, i64 %parity) $attributes {
  ; is the phase of that parity complete
  %value = load i64, ptr %word
  %current = lshr i64 %value, 63
  %asked = and i64 %parity, 1
  %ready = icmp ne i64 %current, %asked
  ret i1 %ready
}
