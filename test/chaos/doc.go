// Package chaos proves that a fleet loses no results when processes are killed or stopped, links fail, disks are full,
// messages are repeated or clocks step. Every process is a real one. TestChaos has a row for each fault. A row injects
// its fault when the run reaches a phase, plus a random delay from the seed. It waits for the end of the run and checks
// its record:
//
//   - Every task of the plan has exactly one outcome in JetStream.
//   - No task is started after its outcome.
//   - The run directory has exactly the snapshots of the counted attempt that JetStream had before the outcome.
//   - The ledger of each outcome agrees with those snapshots, and no confirmed message is missing. If the broker was
//     killed and broke its guarantee to keep confirmed messages, the verdict is not valid.
//   - No controller wrote after a later controller had.
//   - Judging the directory again gives the stored outcome.
//   - The directory that ctl wrote during the run, the one that ctl runs pull creates from JetStream afterwards, and the
//     controller's copy have the same files.
//
// Each deviation counts as a loss. The table shows for each row the fault, a summary of the record, the number of
// losses, and the times until the fault was detected and the run continued. Rows of the control plane and of
// controllers also check how often each task was started.
//
//	go test -v ./test/chaos                                   the short selection
//	LOCKSTEP_LONG=1 go test -v ./test/chaos -chaos.seeds 5    every row, five seeds; the first is LOCKSTEP_SEED (1)
package chaos
