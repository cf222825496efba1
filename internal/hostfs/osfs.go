package hostfs

import "os"

// OS is the live file system.
type OS struct{}

// ReadDir implements FS.
func (OS) ReadDir(p string) ([]string, error) {
	entries, err := os.ReadDir(p)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}
