// SPDX-License-Identifier: Apache-2.0

package known

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// Load reads the results by program that a table was made of, from the file report with ".json"; there may be none yet.
func Load[R any](report string) (map[string]R, error) {
	all := map[string]R{}
	text, err := os.ReadFile(report + ".json")
	if errors.Is(err, os.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("results of before: %w", err)
	}
	return all, nil
}

// Save writes the results by program, and their table, to the files report with ".json" and ".md".
func Save[R any](report string, all map[string]R, table string) error {
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(report+".json", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(report+".md", []byte(table), 0o644)
}
