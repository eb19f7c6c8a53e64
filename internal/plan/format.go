package plan

import "fmt"

// Protocol is the format number of the messages that programs send each other over the control plane. Peers with
// another number are refused.
const Protocol = 6

// RecordFormat is the format number of records: run directories, outcomes, bundles, schedules, and the messages that
// are stored in the streams of the record and the queue. Readers refuse another number.
const RecordFormat = 7

// CheckFormat returns an error unless a record has the format that this program reads. The error names both numbers.
func CheckFormat(format int) error {
	if format == RecordFormat {
		return nil
	}
	return fmt.Errorf("format %d: this program reads format %d: use the release of Lockstep that wrote it", format,
		RecordFormat)
}
