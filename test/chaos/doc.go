// Package chaos does to a running fleet what happens to fleets: processes are killed and stopped, links cut, disks
// filled, messages repeated, clocks stepped. Every process is a real one. TestChaos has a row for each fault; a row
// places its fault by what the control plane shows of the run, plus a random part that the seed decides, lets the run
// end and holds its record to account:
//
//   - every task of the plan has one outcome in JetStream, no more and no less;
//   - no task is begun again after its outcome;
//   - every snapshot of a counted attempt that JetStream had before the outcome is in the run directory, and nothing
//     else is;
//   - the ledger of each outcome is what those snapshots say, and no confirmed message is missing; where the broker was
//     killed and broke its guarantee to keep them, the verdict is not valid;
//   - no controller wrote after a later one had;
//   - judging the directory again gives the stored outcome;
//   - the directory that ctl wrote while it followed is, file by file, the one that ctl pull makes of JetStream
//     afterwards, and the controller's copy.
//
// What breaks one of these is counted as lost. The table says for each row what was done, what the record said of it,
// what was lost, how long it took to notice and until the run went on. Rows of the control plane and of controllers
// also check how often each task was begun.
//
//	go test -v ./test/chaos                                      the short selection
//	LOCKSTEP_LONG=1 go test -v ./test/chaos -chaos.seeds 5       every row, with five seeds from LOCKSTEP_SEED (1) on
package chaos
