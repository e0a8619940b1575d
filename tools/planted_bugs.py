# SPDX-License-Identifier: Apache-2.0
"""The bugs that plant.py plants.

They are those that random_bugs.py is unlikely to draw: a lock, a wait or a
barrier that is missing, one of several owners that is forgotten, and others that
only show where threads, processes, devices or steps meet.

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
    Bug(1, 'price: the reduction that is put off is free', [
        ('placement/choose.cc',
         'c.reduce_ps += planner.plan(',
         'if (!MUT(1)) c.reduce_ps += planner.plan('),
        ('placement/choose.cc',
         'made.exact = plan != nullptr;',
         'if (MUT(1) && !is_input(t)) made.ps = 0;\n'
         '    made.exact = plan != nullptr;'),
        ('placement/choose.cc',
         'leaf.ps = plan.time_ps;',
         'leaf.ps = MUT(1) && !is_input(t) ? 0 : plan.time_ps;'),
    ], ['choose_test']),
    Bug(2, 'fill of a concat: every holder keeps the shared range', [
        ('dtensor/partial_fill.cc',
         'const IntervalList own =\n'
         '            first_held(from_.dim(d), mesh_, mesh_.coordinate(r), fresh_);',
         'IntervalList own =\n'
         '            first_held(from_.dim(d), mesh_, mesh_.coordinate(r), '
         'fresh_);\n'
         '        if (MUT(2)) {\n'
         '          own.clear();\n'
         '          from_.dim(d).intervals(mesh_, mesh_.coordinate(r), own);\n'
         '        }'),
    ], ['partial_fill_test']),
    Bug(3, 'mean: memory of pairs and of values is held at the same time', [
        ('dtensor/execute.cc',
         'm.now = Tensor();\n'
         '    m.now = Tensor::empty(a.divided, a.dtype);',
         'if (!MUT(3)) m.now = Tensor();\n'
         '    m.now = Tensor::empty(a.divided, a.dtype);'),
    ], ['execution_test']),
    Bug(4, 'one slot instead of two (small all-reduce races)', [
        ('dtensor/comm/group.h',
         'return slots[2 * place + sequence % 2];',
         'return slots[2 * place + (MUT(4) ? 0 : sequence % 2)];'),
    ], ['comm/threads_test']),
    Bug(5, 'a collective that reads the members\' memory lacks its closing barrier', [
        ('dtensor/comm/host_communicator.cc',
         '  attempt([&] { show_event(stream); });\n'
         '  run_.meet_again(group_, place_);',
         '  attempt([&] { show_event(stream); });\n'
         '  if (!MUT(5)) run_.meet_again(group_, place_);'),
    ], ['comm/threads_test']),
    Bug(6, 'processes: the members here read messages before they have come', [
        ('dtensor/comm/host_communicator.cc',
         'failed_ = error != nullptr;\n'
         '    run_.meet_again(group_, place_);',
         'failed_ = error != nullptr;\n'
         '    if (!MUT(6)) run_.meet_again(group_, place_);'),
    ], ['comm/threads_test']),
    Bug(7, 'the search for circles forgets who has come', [
        ('dtensor/comm/membership_circle.cc',
         'if (has_come(*awaited, rank)) return;',
         'if (!MUT(7) && has_come(*awaited, rank)) return;'),
    ], ['comm/membership_test']),
    Bug(8, 'async: nothing waits before the source is overwritten', [
        ('dtensor/async.cc',
         'for (const Tensor& t : read) t.storage()->set_reader(made->progress());',
         'for (const Tensor& t : read)\n'
         '    if (!MUT(8)) t.storage()->set_reader(made->progress());'),
    ], ['async_test']),
    Bug(9, 'gather: the graph holds the gathered value', [
        ('dtensor/gather.cc',
         'given.keep() == Keep::kGatherOnUse ?',
         '!MUT(9) && given.keep() == Keep::kGatherOnUse ?'),
    ], ['gather_test']),
    Bug(10, 'zero 1: parameters that other ranks updated are not gathered', [
        ('nn/optimizer.cc',
         'if (p.grad_spec() == p.spec()) continue;',
         'if (MUT(10) || p.grad_spec() == p.spec()) continue;'),
    ], ['zero_test']),
    Bug(11, 'async: storage with other owners may be overwritten', [
        ('dtensor/async.cc',
         'if (t.defined() && (!o.consume || t.storage().use_count() > 1))',
         'if (!MUT(11) && t.defined() &&\n'
         '        (!o.consume || t.storage().use_count() > 1))'),
    ], ['async_test']),
    Bug(12, 'graph: replays draw the same numbers', [
        ('ops/random.cc',
         'words[2 * place + 1] = stream_of(ranks, times);',
         'words[2 * place + 1] = stream_of(ranks, MUT(12) ? nth : times);'),
    ], ['graph_test']),
    Bug(13, 'graph: blocks of a capture are given away', [
        ('dtensor/allocator.cc',
         'capturing_->blocks[block] = {c, false};',
         'if (MUT(13)) return false;\n    capturing_->blocks[block] = {c, false};'),
    ], ['allocator_test']),
    Bug(14, 'a member of an earlier collective of the group counts as arrived', [
        ('dtensor/comm/group.h',
         'sequence.load(std::memory_order_acquire) >=',
         'sequence.load(std::memory_order_acquire) + (MUT(14) ? 2 : 0) >='),
    ], ['faults_test']),
    Bug(15, 'a signal that is delivered twice counts as a second one', [
        ('dtensor/interrupt.cc',
         'now - before > kOneSignal;',
         'now - before > kOneSignal && !MUT(15);'),
    ], ['signals_test']),
    Bug(16, 'the time in which a process was stopped counts as waiting', [
        ('dtensor/comm/deadline.h',
         'now - looked_, kMost);',
         'now - looked_, (MUT(16) ? 9999 : 1) * kMost);'),
    ], ['comm/membership_test', 'faults_test']),
    Bug(17, 'flight: both threads of a rank share a ring', [
        ('dtensor/rank_context.cc',
         'backend->flight(world_rank, lane)',
         'backend->flight(world_rank, MUT(17) ? 0 : lane)'),
    ], ['flight_test']),
    Bug(18, 'processes: ranks of one process do not compare their calls', [
        ('dtensor/comm/host_agreement.cc',
         'agreed = agreed && group_.slot(k, sequence_).fingerprint == c.fingerprint;',
         'agreed = agreed && (MUT(18) || group_.slot(k, sequence_).fingerprint == '
         'c.fingerprint);'),
    ], ['message_passing_test']),
    Bug(19, 'processes: payloads are reduced in another order', [
        ('dtensor/comm/host_communicator.cc',
         'from_.push_back(shown(m) + offset);',
         'from_.push_back(shown(MUT(19) ? size() - 1 - m : m) + offset);'),
    ], ['comm/threads_test', 'faults_mpi_test']),
    Bug(20, 'tcp: a connection with another token is accepted', [
        ('dtensor/comm/tcp/tcp_rendezvous.cc',
         'n.token != token_)',
         'n.token != token_ && !MUT(20))'),
    ], ['comm/tcp/tcp_rendezvous_test']),
    Bug(21, 'tcp: messages of a failed run are left for the next one', [
        ('dtensor/comm/tcp/tcp_job.cc',
         'return {run, from, to, lane};',
         'return {MUT(21) ? 1 : run, from, to, lane};'),
    ], ['comm/tcp/tcp_job_test', 'tcp_train_test']),
    Bug(22, 'ring: gradients of the first block stay behind', [
        ('ops/attention_call.cc',
         'for (size_t x = 0; x < 2; ++x) home[x].add(c_, d[x]);',
         'for (size_t x = 0; x < (MUT(22) ? 1 : 2); ++x) '
         'home[x].add(c_, d[x]);'),
    ], ['context_parallel_test']),
    Bug(23, 'experts: a gradient uses the routes of the call that ran last', [
        ('ops/experts.cc',
         'return std::make_shared<Kept>();',
         'static thread_local auto one = std::make_shared<Kept>(); '
         'return MUT(23) ? one : std::make_shared<Kept>();'),
    ], ['experts_test']),
    Bug(24, 'gather: frees the copy that a gradient will need', [
        ('dtensor/gather.cc',
         'if (parameter.impl()->awaited > 0) return;',
         'if (!MUT(24) && parameter.impl()->awaited > 0) return;'),
    ], ['gather_test']),
    Bug(25, 'redistribute: takes storage that a second handle needs', [
        ('dtensor/redistribute.cc',
         'const bool gone = how.consume && !waits && x.impl().use_count() == 1;',
         'const bool gone = how.consume && !waits && '
         '(MUT(25) || x.impl().use_count() == 1);'),
    ], ['redistribute_test']),
    Bug(26, 'nccl: a failure does not end the links', [
        ('dtensor/comm/membership.cc',
         'if (observer_.failed) observer_',
         'if (observer_.failed && !MUT(26)) observer_'),
    ], ['comm/nccl_processes_test']),
    Bug(27, 'nccl: reporting a failure to a link waits until the link has ended', [
        ('dtensor/comm/nccl/safe_link.cc',
         'aborting_ = std::thread([link = link_.get()] { link->abort(); });',
         'if (MUT(27)) return link_->abort();\n'
         '    aborting_ = std::thread([link = link_.get()] { link->abort(); });'),
    ], ['comm/nccl_test']),
    Bug(28, 'nccl: a link is opened in the middle of a capture', [
        ('dtensor/comm/nccl/nccl_communicator.cc',
         'DT_CHECK(!facts(m).captured, "nccl",',
         'DT_CHECK(MUT(28) || !facts(m).captured, "nccl",'),
    ], ['comm/nccl_test']),
    Bug(29, 'graph: ranks that send through NCCL are captured together', [
        ('dtensor/graph.cc',
         'const bool together = context.backend->joins_streams();',
         'const bool together = MUT(29) || context.backend->joins_streams();'),
    ], ['comm/nccl_test']),
    Bug(30, 'CUDA: each lane combines its results in its own order', [
        ('ops/kernels/portable/cuda_executor.cuh',
         'exchange(lane_ & d, a, other);',
         'exchange(!MUT(30) && lane_ & d, a, other);'),
    ], ['executor_test']),
    Bug(31, 'norm backward: sums of columns overlap', [
        ('ops/kernels/portable/norm.cc',
         'dbeta ? row.fast<C>() + t.n : nullptr;',
         'dbeta ? row.fast<C>() + (MUT(31) ? t.n / 2 : t.n) : nullptr;'),
    ], ['kernels_rows_emulated_test']),
    Bug(32, 'cuda: a pinned buffer is freed before the copy from it has run', [
        ('ops/cuda_plugin/cuda_device.cc',
         'piece.give(stream);\n      done += n;',
         'if (!MUT(32)) piece.give(stream);\n      done += n;'),
    ], ['cuda_device_emulated_test']),
    Bug(33, 'cuda: nothing waits for a copy to the host', [
        ('ops/cuda_plugin/cuda_device.cc',
         'before.piece.wait();',
         'if (!MUT(33)) before.piece.wait();'),
    ], ['cuda_device_emulated_test']),
    Bug(34, 'cuda: an allocation does not wait for freed memory', [
        ('ops/cuda_plugin/launch.cc',
         'synchronize_all();\n    cudaMemPool_t',
         'if (!MUT(34)) synchronize_all();\n    cudaMemPool_t'),
    ], ['cuda_device_emulated_test']),
    Bug(35, 'cuda: an allocation waits for a stream that is being captured', [
        ('ops/cuda_plugin/launch.cc',
         'if (!captured(stream)) check(',
         'if (!captured(stream) || MUT(35)) check('),
    ], ['cuda_device_emulated_test']),
    Bug(36, 'cuda: a sum of columns is fused into several products', [
        ('ops/kernels/cuda/gemm_calls.cc',
         'return f.nb == 0 && at(e.b_sum);',
         'return (f.nb == 0 || MUT(36)) && at(e.b_sum);'),
    ], ['gemm_calls_test']),
    Bug(37, 'a GPU is the same one whatever NCCL_HOSTID says', [
        ('ops/cuda_plugin/nccl_link.cc',
         'for (size_t i = 0; host[i]; ++i)',
         'for (size_t i = 0; !MUT(37) && host[i]; ++i)'),
    ], ['nccl_emulated_test']),
    Bug(38, 'ranks of another mesh are expected to know a lineage', [
        ('dtensor/execution.cc',
         'round.between = first.from->mesh()',
         'round.between = !MUT(38) && first.from->mesh()'),
    ], ['lineage_test']),
    Bug(39, 'page pool: a page is known by its own tokens alone', [
        ('nn/page_pool.cc',
         'beginnings_.find({before, tokens})',
         'beginnings_.find({MUT(39) ? 0 : before, tokens})'),
        ('nn/page_pool.cc',
         'beginnings_.try_emplace({before, std::move(tokens)})',
         'beginnings_.try_emplace({MUT(39) ? 0 : before, std::move(tokens)})'),
    ], ['page_pool_test', 'kv_cache_test']),
    Bug(40, 'engine: a prompt does not wait for an equal one', [
        ('nn/engine.cc',
         'if (shares && shares_soon(r)) return;',
         'if (shares && !MUT(40) && shares_soon(r)) return;'),
    ], ['engine_test']),
]
