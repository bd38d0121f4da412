; What threads of a block know of each other by barriers in memory. The table has a row for each thread, then two for each
; barrier: of those that arrived in the phase under way, and in those that are complete. A row says for each thread up to
; which clock what it did is known (that clock excluded), and for each barrier how many of its phases are. After the rows
; stands for each barrier how many phases are complete.

define internal ptr @mlcc_emulate_row(ptr %report, i64 %row) $attributes {
  %at_table = getelementptr i64, ptr %report, i64 $order
  %at_width = getelementptr i64, ptr %report, i64 $width
  %table = load ptr, ptr %at_table
  %width = load i64, ptr %at_width
  %first = mul i64 %row, %width
  %made = getelementptr i32, ptr %table, i64 %first
  ret ptr %made
}

define internal ptr @mlcc_emulate_phases(ptr %report, i64 %barrier) $attributes {
  ; where the count of complete phases is
  %at_width = getelementptr i64, ptr %report, i64 $width
  %at_count = getelementptr i64, ptr %report, i64 $barriers
  %width = load i64, ptr %at_width
  %count = load i64, ptr %at_count
  %rows = add i64 %width, %count
  %end = call ptr @mlcc_emulate_row(ptr %report, i64 %rows)
  %made = getelementptr i32, ptr %end, i64 %barrier
  ret ptr %made
}

define internal void @mlcc_emulate_raise(ptr %report, ptr %to, ptr %from, i64 %first) $slow {
  ; each entry of a row from `first` on becomes the greater one of two rows'
entry:
  %at_width = getelementptr i64, ptr %report, i64 $width
  %width = load i64, ptr %at_width
  br label %head
head:
  %k = phi i64 [ %first, %entry ], [ %next, %body ]
  %more = icmp slt i64 %k, %width
  br i1 %more, label %body, label %done
body:
  %at_to = getelementptr i32, ptr %to, i64 %k
  %at_from = getelementptr i32, ptr %from, i64 %k
  %a = load i32, ptr %at_to
  %b = load i32, ptr %at_from
  %less = icmp ult i32 %a, %b
  %most = select i1 %less, i32 %b, i32 %a
  store i32 %most, ptr %at_to
  %next = add i64 %k, 1
  br label %head
done:
  ret void
}

define internal void @mlcc_emulate_arrived(ptr %report, i64 %barrier, i64 %thread, i32 %clock) $attributes {
  %at_width = getelementptr i64, ptr %report, i64 $width
  %at_count = getelementptr i64, ptr %report, i64 $barriers
  %width = load i64, ptr %at_width
  %count = load i64, ptr %at_count
  %threads = sub i64 %width, %count
  %row = add i64 %threads, %barrier
  %to = call ptr @mlcc_emulate_row(ptr %report, i64 %row)
  %from = call ptr @mlcc_emulate_row(ptr %report, i64 %thread)
  call void @mlcc_emulate_raise(ptr %report, ptr %to, ptr %from, i64 0)
  %own = getelementptr i32, ptr %to, i64 %thread
  %until = add i32 %clock, 1
  store i32 %until, ptr %own
  ret void
}

define internal void @mlcc_emulate_completed(ptr %report, i64 %barrier) $attributes {
  %at_width = getelementptr i64, ptr %report, i64 $width
  %at_count = getelementptr i64, ptr %report, i64 $barriers
  %width = load i64, ptr %at_width
  %count = load i64, ptr %at_count
  %threads = sub i64 %width, %count
  %under_way = add i64 %threads, %barrier
  %row = add i64 %width, %barrier
  %to = call ptr @mlcc_emulate_row(ptr %report, i64 %row)
  %from = call ptr @mlcc_emulate_row(ptr %report, i64 %under_way)
  call void @mlcc_emulate_raise(ptr %report, ptr %to, ptr %from, i64 0)
  %at = call ptr @mlcc_emulate_phases(ptr %report, i64 %barrier)
  %phases = load i32, ptr %at
  %next = add i32 %phases, 1
  store i32 %next, ptr %at
  ret void
}

define internal void @mlcc_emulate_waited(ptr %report, i64 %barrier, i64 %thread) $attributes {
  %at_width = getelementptr i64, ptr %report, i64 $width
  %at_count = getelementptr i64, ptr %report, i64 $barriers
  %width = load i64, ptr %at_width
  %count = load i64, ptr %at_count
  %threads = sub i64 %width, %count
  %row = add i64 %width, %barrier
  %to = call ptr @mlcc_emulate_row(ptr %report, i64 %thread)
  %from = call ptr @mlcc_emulate_row(ptr %report, i64 %row)
  call void @mlcc_emulate_raise(ptr %report, ptr %to, ptr %from, i64 0)
  %at = call ptr @mlcc_emulate_phases(ptr %report, i64 %barrier)
  %phases = load i32, ptr %at
  %column = add i64 %threads, %barrier
  %own = getelementptr i32, ptr %to, i64 %column
  store i32 %phases, ptr %own
  ret void
}

define internal void @mlcc_emulate_join(ptr %report, i64 %start, i64 %count, i64 %first) $slow {
  ; threads from `start` on know what one of them knows, of the columns from `first` on
entry:
  %one = call ptr @mlcc_emulate_row(ptr %report, i64 %start)
  br label %gather
gather:
  %i = phi i64 [ 1, %entry ], [ %next_i, %gathering ]
  %more_i = icmp slt i64 %i, %count
  br i1 %more_i, label %gathering, label %spread
gathering:
  %from_i = add i64 %start, %i
  %from = call ptr @mlcc_emulate_row(ptr %report, i64 %from_i)
  call void @mlcc_emulate_raise(ptr %report, ptr %one, ptr %from, i64 %first)
  %next_i = add i64 %i, 1
  br label %gather
spread:
  %j = phi i64 [ 1, %gather ], [ %next_j, %spreading ]
  %more_j = icmp slt i64 %j, %count
  br i1 %more_j, label %spreading, label %done
spreading:
  %to_j = add i64 %start, %j
  %to = call ptr @mlcc_emulate_row(ptr %report, i64 %to_j)
  call void @mlcc_emulate_raise(ptr %report, ptr %to, ptr %one, i64 %first)
  %next_j = add i64 %j, 1
  br label %spread
done:
  ret void
}
