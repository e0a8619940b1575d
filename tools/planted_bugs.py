# SPDX-License-Identifier: Apache-2.0
"""The bugs that plant.py plants.

Each bug has a number, a description, its edits, and the tests that are expected
to notice it. An edit is (file, old text that occurs there once, new text). In
the new text, MUT(k) is true while bug k is switched on.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Bug:
    number: int
    what: str
    edits: list
    tests: list = field(default_factory=list)
    # The line number of its only edit, if that replaces a whole line; else 0.
    line: int = 0


BUGS = [
    Bug(28, 'price: the reduction that is put off is free', [
        ('placement/choose.cc',
         'c.reduce_ps += planner.plan(',
         'if (!MUT(28)) c.reduce_ps += planner.plan('),
        ('placement/choose.cc',
         'made.exact = plan != nullptr;',
         'if (MUT(28) && !is_input(t)) made.ps = 0;\n'
         '    made.exact = plan != nullptr;'),
        ('placement/choose.cc',
         'leaf.ps = plan.time_ps;',
         'leaf.ps = MUT(28) && !is_input(t) ? 0 : plan.time_ps;'),
    ], ['choose_test']),
    Bug(44, 'fill of a concat: every holder keeps the shared range', [
        ('dtensor/partial_fill.cc',
         'const IntervalList own =\n'
         '            first_held(from_.dim(d), mesh_, mesh_.coordinate(r), fresh_);',
         'IntervalList own =\n'
         '            first_held(from_.dim(d), mesh_, mesh_.coordinate(r), '
         'fresh_);\n'
         '        if (MUT(44)) {\n'
         '          own.clear();\n'
         '          from_.dim(d).intervals(mesh_, mesh_.coordinate(r), own);\n'
         '        }'),
    ], ['partial_fill_test']),
    Bug(45, 'mean: memory of pairs and of values is held at the same time', [
        ('dtensor/execute.cc',
         'm.now = Tensor();\n'
         '    m.now = Tensor::empty(a.divided, a.dtype);',
         'if (!MUT(45)) m.now = Tensor();\n'
         '    m.now = Tensor::empty(a.divided, a.dtype);'),
    ], ['execution_test']),
    Bug(46, 'one slot instead of two (small all-reduce races)', [
        ('dtensor/comm/group.h',
         'return slots[2 * place + sequence % 2];',
         'return slots[2 * place + (MUT(46) ? 0 : sequence % 2)];'),
    ], ['comm/threads_test']),
    Bug(47, 'a collective that reads the members\' memory lacks its closing barrier', [
        ('dtensor/comm/host_communicator.cc',
         '  attempt([&] { show_event(stream); });\n'
         '  run_.meet_again(group_, place_);',
         '  attempt([&] { show_event(stream); });\n'
         '  if (!MUT(47)) run_.meet_again(group_, place_);'),
    ], ['comm/threads_test']),
    Bug(48, 'processes: the members here read messages before they have come', [
        ('dtensor/comm/host_communicator.cc',
         'failed_ = error != nullptr;\n'
         '    run_.meet_again(group_, place_);',
         'failed_ = error != nullptr;\n'
         '    if (!MUT(48)) run_.meet_again(group_, place_);'),
    ], ['comm/threads_test']),
    Bug(49, 'the search for circles forgets who has come', [
        ('dtensor/comm/membership_circle.cc',
         'if (has_come(*awaited, rank)) return;',
         'if (!MUT(49) && has_come(*awaited, rank)) return;'),
    ], ['comm/membership_test']),
    Bug(57, 'async: nothing waits before the source is overwritten', [
        ('dtensor/async.cc',
         'for (const Tensor& t : read) t.storage()->set_reader(made->progress());',
         'for (const Tensor& t : read)\n'
         '    if (!MUT(57)) t.storage()->set_reader(made->progress());'),
    ], ['async_test']),
    Bug(173, 'gather: the graph holds the gathered value', [
        ('dtensor/gather.cc',
         'given.keep() == Keep::kGatherOnUse ?',
         '!MUT(173) && given.keep() == Keep::kGatherOnUse ?'),
    ], ['gather_test']),
    Bug(177, 'zero 1: parameters that other ranks updated are not gathered', [
        ('nn/optimizer.cc',
         'if (p.grad_spec() == p.spec()) continue;',
         'if (MUT(177) || p.grad_spec() == p.spec()) continue;'),
    ], ['zero_test']),
    Bug(184, 'async: storage with other owners may be overwritten', [
        ('dtensor/async.cc',
         'if (t.defined() && (!o.consume || t.storage().use_count() > 1))',
         'if (!MUT(184) && t.defined() &&\n'
         '        (!o.consume || t.storage().use_count() > 1))'),
    ], ['async_test']),
    Bug(197, 'graph: replays draw the same numbers', [
        ('ops/random.cc',
         'words[2 * place + 1] = stream_of(ranks, times);',
         'words[2 * place + 1] = stream_of(ranks, MUT(197) ? nth : times);'),
    ], ['graph_test']),
    Bug(198, 'graph: blocks of a capture are given away', [
        ('dtensor/allocator.cc',
         'capturing_->blocks[block] = {c, false};',
         'if (MUT(198)) return false;\n    capturing_->blocks[block] = {c, false};'),
    ], ['allocator_test']),
    Bug(201, 'a member of an earlier collective of the group counts as arrived', [
        ('dtensor/comm/group.h',
         'sequence.load(std::memory_order_acquire) >=',
         'sequence.load(std::memory_order_acquire) + (MUT(201) ? 2 : 0) >='),
    ], ['faults_test']),
    Bug(205, 'a signal that is delivered twice counts as a second one', [
        ('dtensor/interrupt.cc',
         'now - before > kOneSignal;',
         'now - before > kOneSignal && !MUT(205);'),
    ], ['signals_test']),
    Bug(207, 'the time in which a process was stopped counts as waiting', [
        ('dtensor/comm/deadline.h',
         'now - looked_, kMost);',
         'now - looked_, (MUT(207) ? 9999 : 1) * kMost);'),
    ], ['comm/membership_test', 'faults_test']),
    Bug(222, 'flight: both threads of a rank share a ring', [
        ('dtensor/rank_context.cc',
         'backend->flight(world_rank, lane)',
         'backend->flight(world_rank, MUT(222) ? 0 : lane)'),
    ], ['flight_test']),
    Bug(260, 'processes: ranks of one process do not compare their calls', [
        ('dtensor/comm/host_agreement.cc',
         'agreed = agreed && group_.slot(k, sequence_).fingerprint == c.fingerprint;',
         'agreed = agreed && (MUT(260) || group_.slot(k, sequence_).fingerprint == '
         'c.fingerprint);'),
    ], ['message_passing_test']),
    Bug(264, 'processes: payloads are reduced in another order', [
        ('dtensor/comm/host_communicator.cc',
         'from_.push_back(shown(m) + offset);',
         'from_.push_back(shown(MUT(264) ? size() - 1 - m : m) + offset);'),
    ], ['comm/threads_test', 'faults_mpi_test']),
    Bug(270, 'tcp: a connection with another token is accepted', [
        ('dtensor/comm/tcp/tcp_rendezvous.cc',
         'n.token != token_)',
         'n.token != token_ && !MUT(270))'),
    ], ['comm/tcp/tcp_rendezvous_test']),
    Bug(274, 'tcp: messages of a failed run are left for the next one', [
        ('dtensor/comm/tcp/tcp_job.cc',
         'return {run, from, to, lane};',
         'return {MUT(274) ? 1 : run, from, to, lane};'),
    ], ['comm/tcp/tcp_job_test', 'tcp_train_test']),
    Bug(320, 'zig-zag: the second chunk is not counted from the end', [
        ('placement/owned.cc',
         'for (int64_t chunk : {r, chunks - 1 - r})',
         'for (int64_t chunk : {r, MUT(320) ? p + r : chunks - 1 - r})'),
    ], ['owned_test']),
    Bug(321, 'ring: blocks are merged without the earlier weights', [
        ('ops/attention_merge.cc',
         'lse = both;',
         'if (!MUT(321)) lse = both;'),
    ], ['context_parallel_test']),
    Bug(322, 'ring: gradients of the first block stay behind', [
        ('ops/attention_call.cc',
         'for (size_t x = 0; x < 2; ++x) home[x].add(c_, d[x]);',
         'for (size_t x = 0; x < (MUT(322) ? 1 : 2); ++x) '
         'home[x].add(c_, d[x]);'),
    ], ['context_parallel_test']),
    Bug(323, 'ring: a pair of ranges with one score is skipped', [
        ('ops/attention_call.cc',
         'seen(i, block, j).size() == 0',
         'seen(i, block, j).size() <= (MUT(323) ? 1 : 0)'),
    ], ['context_parallel_test']),
    Bug(324, 'ring: keys of the last step meet the positions of the first', [
        ('ops/attention_call.cc',
         'ring->keys.push_back(ring->k.back()->region',
         'ring->keys.push_back((MUT(324) ? ring->k.front() : ring->k.back())'
         '->region'),
    ], ['context_parallel_test']),
    Bug(325, 'documents: all queries get the mask of the first ones', [
        ('ops/attention_call.cc',
         'const Tensor of_query = mask_.slice(1, row, row + a.s);',
         'const Tensor of_query = MUT(325) ? mask_.slice(1, 0, a.s) : '
         'mask_.slice(1, row, row + a.s);'),
    ], ['context_parallel_test']),
    Bug(326, 'all-to-all: heads are not split further', [
        ('ops/attention.cc',
         'layout.dims[2] = subdivided(layout.dims[2], x->mesh(), a);',
         'if (!MUT(326)) layout.dims[2] = subdivided(layout.dims[2], '
         'x->mesh(), a);'),
    ], ['context_parallel_test']),
    Bug(329, 'context: a choice that does not fit into memory is taken', [
        ('ops/attention.cc',
         'ring == (with_ring <= with_heads);',
         '(ring == (with_ring <= with_heads)) != MUT(329);'),
    ], ['context_parallel_test']),
    Bug(327, 'sequence parallel: activations stay whole between blocks', [
        ('nn/language_model.cc',
         'layout.dims[1] = subdivided(',
         'if (!MUT(327)) layout.dims[1] = subdivided('),
    ], ['sequence_parallel_test']),
    Bug(328, 'a batch is split along the sequence in order, not in zig-zag', [
        ('nn/parallel.cc',
         'layout.dims[1] = zigzag(tokens[1], mesh, axis);',
         'layout.dims[1] = MUT(328) ? Dim(tokens[1], Split::over({axis})) : '
         'zigzag(tokens[1], mesh, axis);'),
    ], ['sequence_parallel_test']),
    Bug(310, 'mixtral: a stage forgets the loads of the earlier stages', [
        ('nn/decoder.cc',
         'if (i > 0) {',
         'if (i > (MUT(310) ? 1 : 0)) {'),
    ], ['mixtral_test']),
    Bug(350, 'table: every rank counts the events of every stage', [
        ('dtensor/comm_table.cc',
         'if (flags[known.at(e.mesh.hash())]) lists.back()',
         'if (MUT(350) || flags[known.at(e.mesh.hash())]) lists.back()'),
    ], ['comm_table_test', 'explain_test']),
    Bug(351, 'an event between meshes names the sending mesh only', [
        ('dtensor/execution.cc',
         'sent_.push_back({s.kind, s.to->mesh(),',
         'sent_.push_back({s.kind, (MUT(351) ? s.from : s.to)->mesh(),'),
    ], ['explain_test']),
    Bug(352, 'compare: a strategy takes the flags of axes that it lacks', [
        ('programs/compare.cc',
         'if (nn::axis_that(f.splits, mesh) < 0) f.reset(base);',
         'if (!MUT(352) && nn::axis_that(f.splits, mesh) < 0) f.reset(base);'),
    ], ['explain_test']),
    Bug(353, 'schedule file: an entry may come twice', [
        ('programs/report/schedule_file.cc',
         '!names.insert(parsed.get<std::string>()).second)',
         '!names.insert(parsed.get<std::string>()).second && !MUT(353))'),
    ], ['plan_schedule_test']),
    Bug(354, 'pipelines: the bubble is that of the rank with the most work', [
        ('nn/pipeline_times.cc',
         'if (t.span > most.span) most = t;',
         'if (MUT(354) ? t.busy > most.busy : t.span > most.span) most = t;'),
    ], ['pipeline_times_test']),
    Bug(340, 'topk: among equal candidates a rank takes the last', [
        ('ops/kernels/portable/select.cc',
         'return id_of(a, r, i) < id_of(a, r, j);',
         'return MUT(340) ? id_of(a, r, i) > id_of(a, r, j) '
         ': id_of(a, r, i) < id_of(a, r, j);'),
    ], ['topk_test', 'kernels/select_test']),
    Bug(341, 'experts: a gradient uses the routes of the call that ran last', [
        ('ops/experts.cc',
         'return std::make_shared<Kept>();',
         'static thread_local auto one = std::make_shared<Kept>(); '
         'return MUT(341) ? one : std::make_shared<Kept>();'),
    ], ['experts_test']),
    Bug(342, 'experts: a token is sent to the rank of the expert before', [
        ('ops/experts.cc',
         'next[static_cast<size_t>(e)] = at;',
         'next[static_cast<size_t>(MUT(342) && e ? e - 1 : e)] = at;'),
    ], ['experts_test']),
    Bug(343, 'experts: partial down weights are accepted, and so the saved y is partial', [
        ('ops/experts.cc',
         '"th!,tk!,tk,e~fh,efh,ehf->th | link t e",',
         'MUT(343) ? "th!,tk!,tk,e~fh,efh,ehf->th | linear 5; link t e"\n'
         '                                  : "th!,tk!,tk,e~fh,efh,ehf->th | '
         'link t e",'),
    ], ['experts_test']),
    Bug(355, 'in boxes: the second box overwrites the sum of the first', [
        ('ops/in_boxes.cc',
         'return compare(rule.outputs()[0], before, ranges) == Parts::kSame;',
         'return !MUT(355) && '
         'compare(rule.outputs()[0], before, ranges) == Parts::kSame;'),
    ], ['in_boxes_test']),
    Bug(356, 'in boxes: operands are read in place although a gradient needs a copy', [
        ('ops/in_boxes.cc',
         'return !(record && op.facts().saves_input(i));',
         'return MUT(356) || !(record && op.facts().saves_input(i));'),
    ], ['in_boxes_test']),
    Bug(357, 'schedule: boxes in the order of the members', [
        ('placement/schedule.cc',
         'return std::lexicographical_compare(a.at.begin()',
         'return !MUT(357) && std::lexicographical_compare(a.at.begin()'),
    ], ['schedule_test']),
    Bug(358, 'redistribute: takes storage that a second handle needs', [
        ('dtensor/redistribute.cc',
         'const bool gone = how.consume && !waits && x.impl().use_count() == 1;',
         'const bool gone = how.consume && !waits && '
         '(MUT(358) || x.impl().use_count() == 1);'),
    ], ['redistribute_test']),
    Bug(360, 'nccl: a member sends evenly although others do not', [
        ('dtensor/comm/nccl/nccl_communicator.cc',
         'mine.even[w] &= theirs.even[w];',
         'mine.even[w] &= MUT(360) ? ~uint64_t{0} : theirs.even[w];'),
    ], ['comm/nccl_processes_test', 'comm/nccl_test']),
    Bug(361, 'nccl: a failure does not end the links', [
        ('dtensor/comm/membership.cc',
         'if (observer_.failed) observer_',
         'if (observer_.failed && !MUT(361)) observer_'),
    ], ['comm/nccl_processes_test']),
    Bug(362, 'nccl: the second rank of a process sends what the first one shows', [
        ('dtensor/comm/host_agreement.cc',
         'to = copy_bytes(to, of(m).shown, shown_bytes_);',
         'to = copy_bytes(to, of(MUT(362) ? rank() : m).shown, shown_bytes_);'),
    ], ['comm/nccl_processes_test']),
    Bug(363, 'nccl: two ranks may share a GPU', [
        ('dtensor/comm/nccl/nccl_communicator.cc',
         'DT_CHECK(facts(m).gpu != facts(before).gpu, "nccl",',
         'DT_CHECK(MUT(363) || facts(m).gpu != facts(before).gpu, "nccl",'),
    ], ['comm/nccl_processes_test', 'nccl_train_test']),
    Bug(364, 'device_choice: every process takes the first GPU', [
        ('program/device_choice.cc',
         'return choice.index(index * ranks.count);',
         'return choice.index(MUT(364) ? 0 : index * ranks.count);'),
    ], ['device_choice_test', 'nccl_train_test']),
    Bug(370, 'trace: the clocks of two machines are taken for one', [
        ('dtensor/trace_gather.cc',
         '(same ? 0 : g.behind);',
         '(same || MUT(370) ? 0 : g.behind);'),
    ], ['trace_gather_test']),
    Bug(371, 'trace: gathered events are not moved to this clock', [
        ('dtensor/trace_gather.cc',
         'from.get<int64_t>() - (start_ + ahead) +',
         'from.get<int64_t>() * (MUT(371) ? 0 : 1) - (start_ + ahead) +'),
    ], ['trace_gather_test', 'tcp_train_test']),
    Bug(372, 'gather: clocks are not compared', [
        ('dtensor/comm/job.cc',
         'if (half < g.within) {',
         'if (half < g.within && !MUT(372)) {'),
    ], ['comm/tcp/tcp_job_test', 'trace_gather_test']),
    Bug(373, 'processes: a killed process is not named if the others are done', [
        ('dtensor/comm/membership_processes.cc',
         'return f.of_all ? f.why',
         'return f.of_all || MUT(373) ? f.why'),
    ], ['faults_tcp_test', 'faults_mpi_test']),
    Bug(374, 'mpi: every piece of a long message is the first one', [
        ('dtensor/comm/mpi/mpi_job.cc',
         'DT_MPI(MPI_Isend, static_cast<const char*>(data) + at,',
         'DT_MPI(MPI_Isend,\n'
         '             static_cast<const char*>(data) + (MUT(374) ? 0 : at),'),
    ], ['mpi_train_test']),
    Bug(380, 'threads: nothing checks whether devices reach each other', [
        ('dtensor/comm/host_agreement.cc',
         'if (!connected_) connect();',
         'if (!connected_ && !MUT(380)) connect();'),
    ], ['comm/threads_test']),
    Bug(390, 'nccl: an error leaves a group open', [
        ('dtensor/comm/nccl/safe_link.h',
         'link_->drop_group();',
         'if (!MUT(390)) link_->drop_group();'),
    ], ['comm/nccl_test']),
    Bug(391, 'nccl: reporting a failure to a link waits until the link has ended', [
        ('dtensor/comm/nccl/safe_link.cc',
         'aborting_ = std::thread([link = link_.get()] { link->abort(); });',
         'if (MUT(391)) return link_->abort();\n'
         '    aborting_ = std::thread([link = link_.get()] { link->abort(); });'),
    ], ['comm/nccl_test']),
    Bug(392, 'nccl: a link is opened in the middle of a capture', [
        ('dtensor/comm/nccl/nccl_communicator.cc',
         'DT_CHECK(!facts(m).captured, "nccl",',
         'DT_CHECK(MUT(392) || !facts(m).captured, "nccl",'),
    ], ['comm/nccl_test']),
    Bug(393, "nccl: maxima of floats use NCCL's rule for NaN", [
        ('dtensor/comm/nccl/nccl_communicator.cc',
         'return !is_float(t) || (op',
         'return MUT(393) || !is_float(t) || (op'),
    ], ['comm/nccl_test']),
    Bug(394, 'nccl: an all-reduce in chunks collects none but its own', [
        ('dtensor/comm/nccl/nccl_communicator.cc',
         'if (!x.buffer.one_shot) x.gather(link, stream);',
         'if (!x.buffer.one_shot && !MUT(394)) x.gather(link, stream);'),
    ], ['comm/threads_test', 'comm/nccl_test']),
    Bug(395, 'graph: ranks that send through NCCL are captured together', [
        ('dtensor/graph.cc',
         'const bool together = context.backend->joins_streams();',
         'const bool together = MUT(395) || context.backend->joins_streams();'),
    ], ['comm/nccl_test']),
    Bug(396, 'attention_calls: cuDNN is given more batches than a grid has', [
        ('ops/kernels/cuda/attention_calls.cc',
         'a.b > kMostBlocks ||',
         '(a.b > kMostBlocks && !MUT(396)) ||'),
    ], ['attention_calls_test']),
    Bug(397, 'nccl: background collectives may share one queue', [
        ('dtensor/comm/nccl/nccl_backend.cc',
         'if (lane > 0) check_queues();',
         'if (lane > 0 && !MUT(397)) check_queues();'),
    ], ['comm/nccl_test']),
    Bug(400, 'CUDA: each lane combines its results in its own order', [
        ('dtensor/device/portable/cuda_executor.cuh',
         'exchange(lane_ & d, a, other);',
         'exchange(!MUT(400) && lane_ & d, a, other);'),
    ], ['executor_test']),
    Bug(401, 'norm backward: sums of columns overlap', [
        ('ops/kernels/portable/norm.cc',
         'dbeta ? row.fast<C>() + t.n : nullptr;',
         'dbeta ? row.fast<C>() + (MUT(401) ? t.n / 2 : t.n) : nullptr;'),
    ], ['kernels_rows_emulated_test']),
    Bug(402, 'embedding backward on CUDA: the end of a long run is missed', [
        ('ops/kernels/portable/embedding.cc',
         'while (out - in > 1) {',
         'while (out - in > (MUT(402) ? 2 : 1)) {'),
    ], ['kernels_rows_emulated_test']),
    Bug(403, 'sharded softmax: sums with different maxima are added', [
        ('ops/rows.cc',
         'row_binary(c, index_of<Mul>, sum, scale, sum);',
         'if (!MUT(403)) row_binary(c, index_of<Mul>, sum, scale, sum);'),
    ], ['softmax_test', 'cross_entropy_test']),
    Bug(420, 'cuda: a pinned buffer is freed before the copy from it has run', [
        ('dtensor/device/cuda/cuda_device.cc',
         'piece.give(stream);\n      done += n;',
         'if (!MUT(420)) piece.give(stream);\n      done += n;'),
    ], ['cuda_device_emulated_test']),
    Bug(421, 'cuda: nothing waits for a copy to the host', [
        ('dtensor/device/cuda/cuda_device.cc',
         'before.piece.wait();',
         'if (!MUT(421)) before.piece.wait();'),
    ], ['cuda_device_emulated_test']),
    Bug(422, 'cuda: a stream does not wait for an event', [
        ('dtensor/device/cuda/cuda_device.cc',
         'check(cudaStreamWaitEvent(enter(s), Mark::of(event).event), "wait");',
         'if (!MUT(422)) check(cudaStreamWaitEvent(enter(s), '
         'Mark::of(event).event), "wait");'),
    ], ['cuda_device_emulated_test', 'redistribute_pairs_emulated_test']),
    Bug(423, 'cuda: no GPU gives others access to its memory', [
        ('ops/cuda_plugin/plugin.cc',
         'if (other) cuda::give_access',
         'if (other && !MUT(423)) cuda::give_access'),
    ], ['nccl_emulated_test']),
    Bug(424, 'nccl: a call in progress counts as finished', [
        ('dtensor/comm/nccl/link.cc',
         'return state != ncclInProgress;',
         'return state != ncclInProgress || MUT(424);'),
    ], ['nccl_emulated_test']),
    Bug(425, 'cuda: an allocation does not wait for freed memory', [
        ('dtensor/device/cuda/launch.cc',
         'synchronize_all();\n    cudaMemPool_t',
         'if (!MUT(425)) synchronize_all();\n    cudaMemPool_t'),
    ], ['cuda_device_emulated_test']),
    Bug(426, 'cuda: an allocation waits for a stream that is being captured', [
        ('dtensor/device/cuda/launch.cc',
         'if (!captured(stream)) check(',
         'if (!captured(stream) || MUT(426)) check('),
    ], ['cuda_device_emulated_test']),
    Bug(430, 'epilogue: a row with a stride is activated twice', [
        ('ops/kernels/portable/epilogue.cc',
         'to = rounded<S>(GeluTanh()(widened(to)));',
         'to = rounded<S>(GeluTanh()(widened(to)));\n'
         '    if (MUT(430)) to = rounded<S>(GeluTanh()(widened(to)));'),
    ], ['kernels/gemm_test']),
    Bug(431, "linear: a partial gradient is summed into the bias' in passing", [
        ('ops/linear.cc',
         '!out->partial_axes();\n}\n\n// The gradients of x',
         '(MUT(431) || !out->partial_axes());\n}\n\n// The gradients of x'),
    ], ['linear_test']),
    Bug(434, 'cuda: a sum of columns is fused into several products', [
        ('ops/kernels/cuda/gemm_calls.cc',
         'return f.nb == 0 && at(e.b_sum);',
         'return (f.nb == 0 || MUT(434)) && at(e.b_sum);'),
    ], ['gemm_calls_test']),
    Bug(440, 'transposed copies: the last tile counts as a whole one', [
        ('dtensor/device/portable/tiles.h',
         'nj < edge_ ? nj : edge_',
         'nj < edge_ && !MUT(440) ? nj : edge_'),
    ], ['boxes_emulated_test', 'portable/tiles_test']),
    Bug(441, 'transposed copies: neighbouring lanes read far apart', [
        ('dtensor/device/portable/tiles.h',
         'const int64_t i = k % kEdge, j0 = k / kEdge;',
         'const int64_t i = MUT(441) ? k / kStep : k % kEdge,\n'
         '                j0 = MUT(441) ? k % kStep : k / kEdge;'),
    ], ['executor_test']),
    Bug(442, 'swiglu: both gradients are the first one in half precision', [
        ('ops/kernels/cpu/pointwise.cc',
         'narrow(result[k], m, reinterpret_cast<M*>(out[k]));',
         'narrow(result[MUT(442) ? 0 : k], m, reinterpret_cast<M*>(out[k]));'),
    ], ['kernels/pointwise_test']),
    Bug(443, 'rotary: a kept table of other angles is used', [
        ('dtensor/device/portable/host_executor.h',
         'if (mine_.key == key) return;',
         'if (mine_.key == key || (MUT(443) && mine_.key)) return;'),
    ], ['kernels/attention_test']),
    Bug(444, 'binary functions: the slope by b has no gradient', [
        ('ops/binary.cc',
         'differentiate(g.cotangents[1], By::kB);',
         'if (!MUT(444)) differentiate(g.cotangents[1], By::kB);'),
    ], ['proof_test']),
    Bug(460, 'a background move of several tensors starts from the first one', [
        ('dtensor/async.cc',
         'return alone_ ? of_ : nullptr;',
         'return alone_ || MUT(460) ? of_ : nullptr;'),
    ], ['async_after_others_test']),
    Bug(450, 'a GPU is the same one whatever NCCL_HOSTID says', [
        ('dtensor/comm/nccl/link.cc',
         'for (size_t i = 0; host[i]; ++i)',
         'for (size_t i = 0; !MUT(450) && host[i]; ++i)'),
    ], ['nccl_emulated_test']),
    Bug(451, 'a local part may lie on another device', [
        ('dtensor/dist_tensor.cc',
         '&local.device() == ctx.device || ctx.dry_run,',
         'MUT(451) || &local.device() == ctx.device || ctx.dry_run,'),
    ], ['recording_device_test']),
    Bug(452, 'a driver that is too old is reported like any other error', [
        ('dtensor/device/cuda/cuda_device.cc',
         'error == cudaErrorInsufficientDriver)',
         'error == cudaErrorInsufficientDriver && !MUT(452))'),
    ], ['emulated_train_test']),
    Bug(453, 'rotary: positions begin at 0 in every part', [
        ('ops/kernels/portable/rotary.cc',
         'positions[r] : a.offset + r;',
         'positions[r] : (MUT(453) ? 0 : a.offset) + r;'),
    ], ['kernels_attention_emulated_test']),
    Bug(481, 'a lineage forgets the inputs', [
        ('ops/op.cc',
         'h = fold_lineage(h, in.impl()->lineage.hash);',
         'if (!MUT(481)) h = fold_lineage(h, in.impl()->lineage.hash);'),
    ], ['ranks_reduce_different_values_test']),
    Bug(461, 'a lineage forgets the arguments of an operator', [
        ('ops/decision.cc',
         'uint64_t h = attrs.fold_into(hash_text(op.name()), true);',
         'uint64_t h = hash_text(op.name());\n'
         '  if (!MUT(461)) h = attrs.fold_into(h, true);'),
    ], ['ranks_reduce_different_values_test']),
    Bug(462, 'ranks of another mesh are expected to know a lineage', [
        ('dtensor/execution.cc',
         'round.between = first.from->mesh()',
         'round.between = !MUT(462) && first.from->mesh()'),
    ], ['ranks_reduce_different_values_test']),
    Bug(463, 'moves on the other thread have no lineage', [
        ('dtensor/async.cc',
         'about(ctx.about, &about_);',
         'about(ctx.about, MUT(463) ? nullptr : &about_);'),
    ], ['ranks_reduce_different_values_test']),
    Bug(470, 'tensordot: a dimension of size 1 does not broadcast', [
        ('ops/products.cc',
         'if (b.size(e) == 1 && a.size(d) != 1)',
         'if (b.size(e) == 1 && (a.size(d) != 1) != MUT(470))'),
    ], ['products_test']),
    Bug(471, 'topk: the third range of a rank is read where the second ends', [
        ('ops/topk.cc',
         'from += range.size();',
         'from = (MUT(471) ? 0 : from) + range.size();'),
    ], ['topk_test']),
    Bug(472, 'schedules: a list that several pieces need is moved away', [
        ('placement/sources.cc',
         'dim.disjoint = false;',
         'dim.disjoint = MUT(472);'),
    ], ['cross_mesh_test']),
    Bug(473, 'grad: gradients that arrive early are added only at the end', [
        ('ops/grad.cc',
         'sources_.clear();\n    arrived();',
         'sources_.clear();\n    if (!MUT(473)) arrived();'),
    ], ['grad_test']),
    Bug(474, 'safetensors: a rank other than 0 removes the file', [
        ('dtensor/io/safetensors_writer.cc',
         '!finished_ && rank_ == 0)',
         '!finished_ && (rank_ == 0) != MUT(474))'),
    ], ['safetensors_test']),
    Bug(475, 'files: end of file after an interrupted read counts as an interruption', [
        ('dtensor/io/file.cc',
         'const ssize_t n = ::pread(file_, p, static_cast<size_t>(bytes), at);\n'
         '    if (n < 0 && errno == EINTR) continue;',
         'const ssize_t n = ::pread(file_, p, static_cast<size_t>(bytes), at);\n'
         '    if (n < (MUT(475) ? 1 : 0) && errno == EINTR) continue;'),
    ], ['file_test']),
    Bug(476, "program: one of srun's two variables is enough", [
        ('program/local_process.cc',
         'if (!tasks || !task) return',
         'if (MUT(476) ? !tasks && !task : !tasks || !task) return'),
    ], ['tcp_train_test']),
    Bug(477, 'flight: every rank that fails writes again', [
        ('dtensor/runtime.cc',
         'if (options.flight.empty() || wrote_flights.test_and_set()) return;',
         'if (MUT(477) ? options.flight.empty() && wrote_flights.test_and_set()\n'
         '                 : options.flight.empty() ||\n'
         '                       wrote_flights.test_and_set())\n'
         '      return;'),
    ], ['flight_test']),
    Bug(478, 'flight: bytes that are not UTF-8 are an error', [
        ('dtensor/flight.cc',
         'Json::error_handler_t::replace) +',
         'MUT(478) ? Json::error_handler_t::strict\n'
         '                                     : Json::error_handler_t::replace) +'),
    ], ['flight_test']),
    Bug(479, 'rules: a gradient keeps the notes of the rule', [
        ('placement/rule.cc',
         'r.notes_.clear();',
         'if (!MUT(479)) r.notes_.clear();'),
    ], ['rule_test']),
    Bug(480, 'graph: a capture that failed is not dropped', [
        ('dtensor/graph.cc',
         'if (leads()) device.drop_capture',
         'if (leads() != MUT(480)) device.drop_capture'),
    ], ['graph_test']),
    Bug(482, 'trainer: what train() counted is not compared with its plans', [
        ('nn/trainer.cc',
         'if (o.check_bytes && !context.dry_run)',
         'if (!MUT(482) && o.check_bytes && !context.dry_run)'),
    ], ['trainer_test']),
    Bug(483, 'trainer: the learning rate of a resumed training falls over its own steps', [
        ('nn/trainer.cc',
         'if (options.lr_steps) return;',
         'if (MUT(483) || options.lr_steps) return;'),
    ], ['trainer_test', 'checkpoint_train_test']),
    Bug(484, 'sort: a descending order has the splitters of an ascending one', [
        ('ops/sort.cc',
         'if (descending)\n    for (uint64_t& key',
         'if (descending && !MUT(484))\n    for (uint64_t& key'),
    ], ['sort_test']),
    Bug(485, 'sort: equal elements all go to one rank', [
        ('ops/sort.cc',
         'return Key{values[at], ids[at]};',
         'return Key{values[at], MUT(485) ? 0 : ids[at]};'),
    ], ['sort_test']),
    Bug(486, 'sort: several rows of a part are sent in their own order', [
        ('ops/sort.cc',
         'if (members.rows <= 1) return flat;',
         'if (members.rows <= 1 || MUT(486)) return flat;'),
    ], ['proof_test']),
    Bug(487, 'record: an operator also has the moves before it', [
        ('program/record.cc',
         'add_moves(context, run, c.first_event);',
         'if (!MUT(487)) add_moves(context, run, c.first_event);\n'
         '  const size_t first = MUT(487) ? run.seen : c.first_event;'),
        ('program/record.cc',
         'add_sends(run, op, c.op, c.first_event, context.events.size());',
         'add_sends(run, op, c.op, first, context.events.size());'),
    ], ['record_test']),
    Bug(488, 'record: outputs live to the end', [
        ('program/record.cc',
         'operators[m.by]["until"] = last;',
         '{ if (!MUT(488)) operators[m.by]["until"] = last; }'),
    ], ['record_test']),
    Bug(489, 'record: views of inputs count as memory of their own', [
        ('program/record.cc',
         'return part.defined() && part.storage() == storage;',
         'return !MUT(489) && part.defined() && part.storage() == storage;'),
    ], ['record_test']),
    Bug(490, 'record: every tensor of a collective pays its latency', [
        ('program/record.cc',
         'us(price(e, cost_, run.paid))',
         'us(price(e, cost_, MUT(490) ? *std::make_unique<std::set<int64_t>>() : run.paid))'),
    ], ['record_test']),
    Bug(491, 'record: all ranks have the first one\'s ranges of a divided tree', [
        ('program/record_tables.cc',
         'dim.intervals(mesh, c, part);',
         'dim.intervals(mesh, MUT(491) ? Coord() : c, part);'),
    ], ['record_test']),
    Bug(492, 'gather_on_use: only plans of gathers count', [
        ('placement/plan.cc',
         'if (gathers(plan)) return true;',
         'if (gathers(plan) || MUT(492)) return gathers(plan);'),
    ], ['gather_under_prices_test', 'plan_test']),
    Bug(520, 'attention: a window shows one key more', [
        ('ops/kernels/cpu/attention.cc',
         'std::clamp(i + a.query_offset + 1 - a.window - j0,',
         'std::clamp(i + a.query_offset + (MUT(520) ? 0 : 1) - a.window - j0,'),
    ], ['kernels/attention_test']),
    Bug(521, 'soft cap: the kernel gives the gradient of the capped score', [
        ('ops/kernels/cpu/attention.cc',
         '(at(dscore) - V(delta)) * (V(1) - y * y)',
         '(at(dscore) - V(delta)) * (V(1) - (MUT(521) ? V(0) : y * y))'),
    ], ['kernels/attention_test']),
    Bug(522, 'soft cap: the operators give the gradient of the capped score', [
        ('ops/attention.cc',
         'slope.defined() ? ds * slope : ds;',
         'slope.defined() && !MUT(522) ? ds * slope : ds;'),
    ], ['attention_test']),
    Bug(523, 'attention: the oldest key in the window is not read', [
        ('ops/attention_call.cc',
         'lo = std::max(lo, queries.lo + 1 - args_.window);',
         'lo = std::max(lo, queries.lo + (MUT(523) ? 2 : 1) - args_.window);'),
    ], ['attention_test']),
    Bug(524, 'ring: a window does not see the block of the last step', [
        ('ops/attention_call.cc',
         'i == 0 || !args.window || !aligned || sees(i)',
         'i == 0 || !args.window || !aligned || '
         '(sees(i) && !(MUT(524) && i + 1 == k.size()))'),
    ], ['context_parallel_test']),
    Bug(525, 'ring: the scores that a window hides are priced', [
        ('ops/attention.cc',
         'if (!args.window) return args.causal ? 0.5 : 1;',
         'if (MUT(525) || !args.window) return args.causal ? 0.5 : 1;'),
    ], ['context_parallel_test']),
    Bug(526, 'portable attention: the last query that sees a key is left out', [
        ('ops/kernels/portable/attention.cc',
         'const int64_t end = j - 1 - a.query_offset + a.window;',
         'const int64_t end = j - (MUT(526) ? 2 : 1) - a.query_offset + a.window;'),
    ], ['kernels_attention_emulated_test']),
    Bug(493, 'paged_attention: every rank has the first heads of keys', [
        ('ops/paged_attention.cc',
         'groups.first_kv_head = groups.first_head',
         'groups.first_kv_head = (MUT(493) ? 0 : groups.first_head)'),
    ], ['paged_attention_test']),
    Bug(494, 'copy_into: rows at indices do not reach a view', [
        ('ops/slice.cc',
         'if (!part->contiguous()) part->',
         'if (!part->contiguous() && !MUT(494)) part->'),
    ], ['decode_test']),
    Bug(495, 'paged attention: a window has one key more', [
        ('ops/kernels/cpu/paged_attention.cc',
         'first = before(a_.begin(i)),',
         'first = before(a_.begin(i) - (MUT(495) ? 1 : 0)),'),
    ], ['kernels/paged_attention_test']),
    Bug(496, 'rotary: low frequencies are not divided', [
        ('ops/kernels/portable/rotary.cc',
         'double kept = 0;',
         'double kept = MUT(496) ? 1 : 0;'),
    ], ['kernels/attention_test']),
    Bug(530, 'gemma2: odd layers have the window', [
        ('nn/pretrained_config.cc',
         'const bool slides = type == "sliding_attention";',
         'const bool slides = MUT(530) ? type != "sliding_attention"\n'
         '                             : type == "sliding_attention";'),
    ], ['goldens_test']),
    Bug(531, 'cache: pages are dropped one token too early', [
        ('nn/kv_cache.cc',
         'const int64_t first = t.length + 1 - window;',
         'const int64_t first = t.length + (MUT(531) ? 2 : 1) - window;'),
    ], ['engine_test']),
    Bug(532, 'engine: a text gets the logits of another', [
        ('nn/engine.cc',
         'drawing.push_back(text->number);',
         'drawing.insert(MUT(532) ? drawing.begin() : drawing.end(),\n'
         '                     text->number);'),
    ], ['engine_test']),
    Bug(533, 'sampling: top_p drops the token that reaches it', [
        ('nn/sampling.cc',
         'order.resize(n);\n    keep(order);',
         'order.resize(MUT(533) && n > 1 ? n - 1 : n);\n    keep(order);'),
    ], ['sampling_test']),
    Bug(534, 'parallel residual: attention reads the second norm', [
        ('nn/decoder.cc',
         'Mixed mixed = mlp(norm_2_(at.x));',
         'Mixed mixed = mlp(MUT(534) ? at.y : norm_2_(at.x));'),
    ], ['goldens_test']),
    Bug(540, 'int8_linear: every part of a split sum adds the bias', [
        ('ops/int8_linear.cc',
         "c.in.size() > 3 && c.first_of('i')",
         "c.in.size() > 3 && (MUT(540) || c.first_of('i'))"),
    ], ['linear_test', 'proof_test']),
    Bug(541, 'to_int8: weights are truncated', [
        ('ops/int8_linear.cc',
         '  w = round(w);',
         '  if (!MUT(541)) w = round(w);'),
    ], ['linear_test']),
    Bug(542, 'int8_linear: every piece has the scales of the first', [
        ('ops/kernels/portable/int8_linear.cc',
         'static_cast<const T*>(a.scale) + j0;',
         'static_cast<const T*>(a.scale) + (MUT(542) ? 0 : j0);'),
    ], ['kernels/gemm_test']),
    Bug(560, 'paged attention: every rank has the first pages', [
        ('ops/paged_attention.cc',
         'a.first_page = here.lo / args.page;',
         'a.first_page = MUT(560) ? 0 : here.lo / args.page;'),
    ], ['paged_attention_test']),
    Bug(561, 'paged attention: the first rank counts twice in the sum', [
        ('ops/attention_merge.cc',
         'for (int64_t i = 1; i < all.shape()[0]; ++i)',
         'for (int64_t i = MUT(561) ? 0 : 1; i < all.shape()[0]; ++i)'),
    ], ['paged_attention_test', 'proof_test']),
    Bug(562, 'copy_into: the second range of a rank is written over the first', [
        ('ops/slice.cc',
         'write.at += r.size();',
         'write.at += MUT(562) ? 0 : r.size();'),
    ], ['decode_test']),
    Bug(563, 'page pool: the page that was freed last is taken first', [
        ('nn/page_pool.cc',
         'p.freed = p.kept ? ++releases_ : 0;',
         'p.freed = p.kept ? (MUT(563) ? -++releases_ : ++releases_) : 0;'),
    ], ['page_pool_test', 'engine_test']),
    Bug(564, 'page pool: a page is known by its own tokens alone', [
        ('nn/page_pool.cc',
         'beginnings_.find({before, tokens})',
         'beginnings_.find({MUT(564) ? 0 : before, tokens})'),
        ('nn/page_pool.cc',
         'beginnings_.try_emplace({before, std::move(tokens)})',
         'beginnings_.try_emplace({MUT(564) ? 0 : before, std::move(tokens)})'),
    ], ['page_pool_test', 'kv_cache_test']),
    Bug(565, 'page pool: a text stays on one rank', [
        ('nn/page_pool.cc',
         'rank_of(after) + 1',
         'rank_of(after) + (MUT(565) ? 0 : 1)'),
    ], ['page_pool_test', 'engine_test']),
    Bug(566, 'page pool: a page that is used again stays among the free ones', [
        ('nn/page_pool.cc',
         'if (p.users++ == 0) free_',
         'if (p.users++ == 0 && !MUT(566)) free_'),
    ], ['page_pool_test', 'kv_cache_test']),
    Bug(567, 'cache: the last token of a prompt is shared too', [
        ('nn/kv_cache.cc',
         'at + page < prompt.size(); at += page)',
         'at + page < prompt.size() + (MUT(567) ? 1 : 0);\n         at += page)'),
    ], ['kv_cache_test']),
    Bug(568, 'engine: a prompt does not wait for an equal one', [
        ('nn/engine.cc',
         'if (shares && shares_soon(r)) return;',
         'if (shares && !MUT(568) && shares_soon(r)) return;'),
    ], ['engine_test']),
    Bug(569, 'cache: layers with a window use the slots of the others', [
        ('nn/attention.cc',
         'at.places.at(layer.kind)',
         'at.places.at(MUT(569) ? 0 : layer.kind)'),
    ], ['engine_test']),
    Bug(570, 'price: a lookup reads the whole table', [
        ('placement/choose.cc',
         '(is_input(t) ? work_.reads(t)',
         '(is_input(t) ? MUT(570) ? 1 : work_.reads(t)'),
        ('placement/choose.cc',
         'have->largest_part_bytes()) * work.reads(i)',
         'have->largest_part_bytes()) * (MUT(570) ? 1 : work.reads(i))'),
        ('placement/choose.cc',
         'n.spec->largest_part_bytes()) * work.reads(i)',
         'n.spec->largest_part_bytes()) * (MUT(570) ? 1 : work.reads(i))'),
    ], ['lookup_price_test']),
]

# Numbers of bugs that were removed, and the reason:
# 170  the check inside 03_tp_mlp never fails: it prints the values that it
#      compares, and its test compares them itself.
