package cli

import (
	"encoding/json"
	"io"

	"github.com/cloche-dev/cloche/audit"
)

// encodeEvents writes events as JSON, one per line, as the log has them.
func encodeEvents(to io.Writer, events []audit.Event) error {
	enc := json.NewEncoder(to)
	for _, e := range events {
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	return nil
}
