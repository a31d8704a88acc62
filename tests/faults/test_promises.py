"""What a training promises where something goes wrong, fault by fault, and by which tests each promise is held.

The numbers are those of the list of faults that the library was written against. What is not promised is said too.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

# Fault -> promise -> tests as FILE: NAMES; or why there is none, which begins with "not promised".
PROMISES: dict[int, dict[str, str]] = {
    1: {
        "kill -9 at 20 random moments, saving among them, uniform and packed, 0 and 2 workers: 80 in all; each restart "
        "finds a whole checkpoint; log, curve, rows, optimizer and weights end as undisturbed": (
            "faults/test_kills.py: test_killed_at_twenty_moments_and_gone_on_with"
        ),
        "killed at each step": (
            "training/test_resume.py: test_killed_at_every_step, test_killed, test_killed_on_endless_data, "
            "test_killed_again_and_again; training/test_packed.py: test_killed_in_a_pass_and_in_the_next"
        ),
        "a checkpoint folder is one that is whole at any moment": "test_checkpoint.py: test_killed_at_many_moments",
        "the losses of the log are digit for digit those of float64": "not promised apart: a log's text is compared, "
        "and JSON's numbers are the shortest that come back to the same bits",
    },
    2: {
        "killed at each point of a save, by name": (
            "training/test_resume.py: test_killed_while_saving; test_checkpoint.py: test_killed_around_the_renames; "
            "training/test_validation.py: test_found_38_killed_and_resumed_both_are_right"
        ),
        "a half-written newest checkpoint is passed over with a line, and strays beside it go": (
            "faults/test_mid_run.py: "
            "test_a_half_written_checkpoint_is_passed_over_and_what_is_left_beside_it_goes; "
            "cli/test_commands_train.py: test_a_damaged_checkpoint_is_passed_over_with_a_warning"
        ),
        "a damaged checkpoint never takes the place of a good one": (
            "training/test_kept_whole.py: test_found_02_a_damaged_checkpoint_never_takes_the_place_of_a_good_one, "
            "test_found_02_one_that_is_damaged_in_mid_run_does_not_either, "
            "test_found_02_the_previous_one_goes_only_when_the_last_is_whole"
        ),
    },
    3: {
        "the stream of ids, seeds, sizes, drops and pixels from any step on: {1, 2, 4} ranks x {0, 2} workers x files, "
        "tables and tars, uniform, repeated and packed": (
            "faults/test_stream.py: test_the_same_stream_from_any_step_on, test_every_place_of_the_plan, "
            "test_another_seed_is_another_stream"
        ),
        "no image twice or missing in an epoch, each showing with a seed of its own": (
            "faults/test_stream.py: test_each_image_once_a_pass_with_a_seed_of_its_own; "
            "training/test_loop.py: test_every_image_of_an_epoch_once; "
            "training/test_packed.py: test_every_image_is_shown_once_a_pass_and_counted"
        ),
        "stopped after the first step, at the end of an epoch, at the begin of the next": (
            "training/test_resume.py: test_stopped_by_an_exception"
        ),
        "optimizer, schedule, mean of the weights, random numbers and the best model go on": (
            "training/test_resume.py: test_every_optimizer_goes_on_where_it_was; "
            "training/test_validation.py: test_found_38_stopped_where_it_is_validated_the_curve_is_the_same, "
            "test_the_best_of_a_step_is_of_this_run_and_no_other; "
            "training/test_augmented.py: test_stopped_and_resumed_it_ends_as_one_that_was_not"
        ),
        "the log has each step once": "faults/test_kills.py: test_killed_at_twenty_moments_and_gone_on_with; "
        "training/test_resume.py: test_killed_again_and_again",
        "a scaler of float16, patience": "not promised: there is neither; training is in float32 or bfloat16, and no "
        "run ends early by its curve",
    },
    4: {
        "SIGTERM and SIGINT: the step is finished and saved, 143 or 130, no process is left": (
            "faults/test_signals.py: test_found_28_a_signal_finishes_the_step_and_saves, "
            "test_found_28_a_demonstration_with_its_jobs, "
            "test_found_27_a_signal_while_everything_is_imported_is_one_line; "
            "faults/test_dense_runs.py: test_a_signal_in_the_last_step_ends_before_the_test"
        ),
        "gone on with as if it had not been": (
            "faults/test_signals.py: test_found_28_what_was_stopped_and_went_on_is_as_if_it_had_not_been"
        ),
        "a second one while saving damages nothing": (
            "faults/test_signals.py: test_found_28_a_second_signal_while_saving_damages_nothing, "
            "test_found_27_a_second_interrupt_with_workers_is_one_line"
        ),
        "under torchrun all ranks stop at the same step": (
            "cli/test_torchrun.py: test_a_signal_to_one_rank_saves_and_ends_all; "
            "training/test_ranks.py: test_ranks_stop_together_and_others_go_on, "
            "test_all_end_by_the_signal_that_one_heard; "
            "test_signals.py: test_a_process_that_was_stopped_is_not_ended_once_more"
        ),
    },
    5: {
        "a full disk, a folder that is read-only or deleted, in mid-run: 5, path and cause, the last checkpoint whole, "
        "nothing half written, and the run goes on": (
            "faults/test_mid_run.py: test_a_disk_that_is_full, test_a_folder_that_nobody_may_write_to_any_more, "
            "test_a_folder_that_is_deleted; "
            "cli/test_run_owner.py: test_found_30_a_folder_that_is_renamed_in_mid_run_ends_it_with_5, "
            "test_found_30_after_the_last_step_too"
        ),
        "the same of a checkpoint folder alone": (
            "test_checkpoint.py: test_a_full_disk_leaves_the_old_checkpoint, "
            "test_a_folder_without_permission_to_write, test_a_rename_that_fails_puts_the_old_folder_back, "
            "test_a_writer_that_fails_leaves_nothing"
        ),
    },
    6: {
        "one bit, truncated, empty, longer, a header of 2**62 bytes, shapes that do not fit: 2, the file named": (
            "faults/test_checkpoints.py: test_one_flipped_bit, test_truncated, test_longer_than_it_was, "
            "test_damaged_weights_with_checksums_that_fit; "
            "test_checkpoint.py: test_one_flipped_bit_anywhere_is_refused, "
            "test_a_truncated_or_missing_file_is_refused; test_checkpoint_tensors.py: test_bad_files"
        ),
        "--resume goes on from the one before, with a line": (
            "faults/test_mid_run.py: "
            "test_a_half_written_checkpoint_is_passed_over_and_what_is_left_beside_it_goes; "
            "training/test_resume.py: test_a_damaged_checkpoint_and_the_one_before_it"
        ),
        "never random weights instead": (
            "faults/test_mid_run.py: test_where_no_checkpoint_is_whole_nothing_is_begun; "
            "training/test_resume.py: test_a_damaged_checkpoint_alone_is_refused; "
            "training/test_kept_whole.py: test_a_run_whose_checkpoint_is_gone_is_not_begun_anew_without_a_word"
        ),
    },
    7: {
        "missing, extra, transposed, another width, depth, heads, classes, dtype, NaN: both shapes, 2": (
            "faults/test_checkpoints.py: test_weights_of_another_model, test_the_configuration_of_another_run; "
            "test_checkpoint_tensors.py: test_every_difference_is_named"
        ),
        "another head and weights that are not finite are asked for": (
            "test_load.py: test_another_head_is_asked_for, test_weights_that_are_not_finite_are_asked_for; "
            "test_fine_tune.py: test_another_number_of_classes_is_a_new_head, test_what_does_not_fit_is_named"
        ),
        "a run goes on as what it was": (
            "training/test_resume.py: test_another_configuration_is_refused, test_the_state_of_another_training"
        ),
    },
    8: {
        "a pickle as weights, as each file of a checkpoint, as a configuration: refused, its code not run": (
            "faults/test_checkpoints.py: test_a_pickle_is_never_run; "
            "test_checkpoint_tensors.py: test_code_in_a_pickle_never_runs"
        ),
        "as data: members of shards, files of tables, images": (
            "faults/test_no_pickle.py: test_data_that_are_pickles_are_not_loaded"
        ),
        "no line reads or writes one, torch.load by weights_only alone": (
            "faults/test_no_pickle.py: test_no_line_of_the_package_reads_or_writes_one"
        ),
        "each file of a run, of one rank and of two, at its end and in its middle, is JSON, text or safetensors": (
            "faults/test_no_pickle.py: test_every_file_of_a_run_is_json_text_or_safetensors, "
            "test_so_is_what_a_command_leaves, test_a_pickle_is_told_from_all_of_them"
        ),
    },
    9: {
        "a loss, gradient or weight that is not finite: 4 before the update, with step, epoch, ids, loss and norm": (
            "training/test_loop.py: test_a_loss_that_is_not_finite_stops_before_the_update; "
            "faults/test_mid_run.py: test_a_weight_that_is_poisoned; "
            "training/test_ranks.py: test_what_is_not_finite_ends_all_before_the_update"
        ),
        "a rate beyond all bounds leaves no checkpoint that is not finite": (
            "training/test_loop.py: test_a_rate_beyond_all_bounds, test_a_rate_that_overflows_in_the_last_step; "
            "cli/test_commands_train.py: test_a_rate_beyond_all_bounds_ends_with_4"
        ),
        "data that overflow": "training/test_loop.py: test_data_that_overflows_is_named",
        "skips of a scaler of float16 are counted": "not promised: there is no training in float16",
    },
    10: {
        "sizes beyond the memory are refused before any work, with batch, size and what fits": (
            "faults/test_memory.py: test_train, test_evaluate, test_predict, test_what_fits_is_not_refused; "
            "training/test_other_sizes.py: test_found_10_memory_is_asked_at_the_new_size; "
            "test_declared.py: test_found_19_weights_beyond_the_memory_are_refused_before_a_model_is_built"
        ),
        "memory that is not given in mid-run: one line, the checkpoint as it was": (
            "faults/test_mid_run.py: test_memory_that_the_system_does_not_give"
        ),
        "the other ranks end too": "faults/test_mid_run.py: test_a_rank_whose_memory_is_gone_ends_the_others",
        "the memory of a GPU": "not promised: tests have no GPU; it ends by the same line",
    },
    11: {
        "a folder has one owner, of many at once one wins, the second is refused with 2": (
            "cli/test_run_owner.py: test_found_28_a_live_run_is_neither_joined_nor_deleted; "
            "test_owner.py: test_found_28_a_folder_has_one_owner_and_is_given_back, "
            "test_found_28_of_many_at_once_one_wins, test_found_28_a_living_owner_is_left_alone_unless_forced"
        ),
        "the dead are taken over": (
            "test_owner.py: test_found_28_a_dead_owner_is_taken_over_with_a_line; "
            "cli/test_run_owner.py: test_found_28_the_dead_are_taken_over_and_the_living_by_force"
        ),
        "not in mid-save": (
            "training/test_taken_over.py: test_found_28_a_folder_is_not_taken_over_in_mid_save, "
            "test_found_28_a_run_that_is_taken_over_while_it_validates_saves_no_more"
        ),
    },
    18: {
        "keys, types, ranges, names: 2, key, value, what is allowed, the nearest name; from a file and by --set": (
            "faults/test_configurations.py: test_from_a_file_and_from_the_command_line, "
            "test_settings_that_are_none, test_rotary_heads_of_an_odd_width; "
            "cli/test_commands_train.py: test_what_is_refused; training/test_config.py: test_a_run, test_an_optimizer"
        ),
        "a file that is none, of another kind, with a key twice, not there": (
            "faults/test_configurations.py: test_a_file_that_is_no_configuration, test_files_of_other_kinds, "
            "test_no_such_file"
        ),
        "the resolved configuration is saved and makes the run again": (
            "cli/test_commands_train.py: test_the_saved_configuration_makes_the_run_again; "
            "cli/test_config.py: test_a_dumped_configuration_comes_back_equal"
        ),
    },
    24: {
        "twice, 0, 2 and 4 workers, other hashes, another order of files, a cold and a warm cache: bit for bit": (
            "faults/test_same_again.py: test_the_same_command_gives_the_same_run, "
            "test_in_another_order_of_the_files_with_and_without_a_cache; "
            "training/test_loop.py: test_the_same_configuration_gives_the_same_weights; "
            "faults/test_folders.py: test_workers_change_nothing"
        ),
        "another seed is another run": (
            "faults/test_same_again.py: test_the_same_command_gives_the_same_run; "
            "training/test_loop.py: test_another_seed_is_another_run"
        ),
        "the same pixels from files, tables and tars": (
            "data/test_three_kinds.py: test_examples_are_those_of_files; "
            "faults/test_stream.py: test_the_same_stream_from_any_step_on"
        ),
        "on another machine, with other versions, threads or ranks, on a GPU": "not promised: sums are made in another "
        "order; threads and ranks that differ are said by a line (training/test_resume.py)",
    },
    25: {
        "the golden model in bfloat16 and float16, near its float32": (
            "models/test_behaviour.py: test_16_bits_on_the_golden_model; "
            "contract/test_encodings.py: test_bfloat16_model; "
            "attention/test_dense.py: test_found_16_bfloat16_is_as_exact_as_sdpa_in_bfloat16"
        ),
        "large scores and logits give no NaN": (
            "models/test_behaviour.py: test_large_scores_give_no_nan, test_large_logits_give_no_nan; "
            "attention/test_dense.py: test_masks_survive_16_bits"
        ),
        "positions and angles in float32 up to 64 x 64": (
            "encodings/test_precision.py: test_angles_are_those_of_float64, test_angles_in_a_model_under_autocast, "
            "test_embeddings_under_autocast, test_biases_under_autocast, "
            "test_a_default_dtype_of_16_bits_does_not_reach_the_positions; "
            "attention/test_rotation.py: test_turned_in_float32_and_rounded_once"
        ),
        "on a GPU": "not promised: tests have no GPU",
    },
    27: {
        "two and four processes, uneven and idle ones, packed: one gradient, 1e-6 of its norm in float64": (
            "training/test_ranks.py: test_one_gradient_of_all_ranks, test_two_ranks_train_as_one; "
            "faults/test_four_ranks.py: test_one_gradient_of_four, test_four_train_as_one"
        ),
        "a model in parts (FSDP2) as a whole one, its checkpoint on any number of ranks": (
            "training/test_sharing.py: test_parts_train_as_the_whole, test_every_optimizer_keeps_parts, "
            "test_any_number_of_ranks_goes_on, test_a_rank_whose_disk_is_full_leaves_what_was_there"
        ),
        "batch norms of all ranks together": (
            "training/test_batch_norm.py: test_one_gradient_of_all_ranks, test_every_value_and_gradient, "
            "test_a_rank_without_an_image_counts_nothing"
        ),
        "in parts as at once": "training/test_ranks.py: test_a_step_in_parts_is_the_step, test_parts_on_two_ranks",
        "every image once an epoch": "faults/test_stream.py: test_the_same_stream_from_any_step_on",
        "a killed rank ends all within 60 s; 4 and 1 go on with the same images in the same steps": (
            "cli/test_torchrun.py: test_a_killed_rank_ends_all_and_four_go_on; "
            "training/test_ranks.py: test_ranks_stop_together_and_others_go_on"
        ),
        "as many go on to the same bits": "faults/test_four_ranks.py: test_four_go_on_to_the_same_bits",
        "a fault of one is said by all": (
            "training/test_ranks.py: test_a_fault_of_one_is_said_by_all, test_an_image_that_cannot_be_read_ends_all, "
            "test_what_one_leaves_out_all_count"
        ),
        "measured images are counted once each": (
            "evaluation/test_evaluate.py: test_the_same_however_it_is_cut_into_batches, test_how_many_are_measured; "
            "evaluation/test_several_ranks.py: test_two_ranks_measure_what_one_measures; "
            "cli/test_answers.py: test_two_ranks_write_what_one_writes"
        ),
        "NCCL, many machines": "not promised: tests have gloo on one machine",
    },
    28: {
        "runs of other versions are refused in one line": (
            "training/test_resume.py: test_found_29_what_another_version_began_is_refused_by_name; "
            "test_stored_recipes.py: *"
        ),
        "no HOME to write to, no terminal, LANG=C, no GPU": (
            "faults/test_mid_run.py: test_without_a_home_a_terminal_or_a_language; "
            "cli/test_app.py: test_help_without_home_terminal_or_locale, test_help_loads_nothing_heavy; "
            "faults/test_processes.py: test_names_that_the_terminal_cannot_print"
        ),
        "standard streams that are closed": (
            "cli/test_app.py: test_a_reader_that_goes_away_is_no_fault, test_a_reader_that_goes_away_from_a_verb, "
            "test_no_standard_output_at_all, test_found_30_no_standard_error"
        ),
        "a clock that jumps back": "faults/test_mid_run.py: test_a_clock_that_jumps_back",
        "no process and no shared memory is left by what is killed": (
            "faults/test_kills.py: test_no_worker_outlives_what_is_killed, "
            "test_killed_at_twenty_moments_and_gone_on_with; "
            "training/test_jobs.py: test_no_job_outlives_its_caller"
        ),
        "the real exit codes, no traceback": "faults/test_processes.py: test_exit_codes",
    },
}


@functools.lru_cache
def names_in(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize("fault", PROMISES)
def test_each_promise_is_held_by_tests_that_are_there(fault):
    for promise, said in PROMISES[fault].items():
        if said.startswith("not promised"):
            continue
        for part in said.split("; "):
            file, _, names = part.partition(": ")
            assert (TESTS / file).is_file(), (promise, file)
            named = names_in(file) if names == "*" else set(names.split(", "))
            assert named, promise
            assert named <= names_in(file), (promise, file, sorted(named - names_in(file)))


def test_every_fault_of_a_training_is_there():
    assert sorted(PROMISES) == [*range(1, 12), 18, 24, 25, 27, 28]
    assert all(any(not said.startswith("not promised") for said in promises.values()) for promises in PROMISES.values())
