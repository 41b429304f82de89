package projections

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
)

// CheckpointFault returns an error that describes the damage of a checkpoint, or nil
// if its line decodes and its checksum matches. It decodes no state and does not
// check that a log has the event that the checkpoint names.
func CheckpointFault(data []byte) error {
	line, answer, found := bytes.Cut(data, []byte("\n"))
	var kept checkpoint
	if err := json.Unmarshal(line, &kept); err != nil {
		return fmt.Errorf("its line is not JSON: %w", err)
	}
	if !found || crc32.Checksum(answer, castagnoli) != kept.Sum {
		return errors.New("its bytes do not match their sum")
	}
	return nil
}
