package sessions

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// instructionsFile is the file of a project with instructions for every agent.
const instructionsFile = "AGENTS.md"

// maxInstructions is the largest file of instructions in bytes.
const maxInstructions = 64 << 10

// instructions returns the instructions of the project in a folder, with a line that says
// where they are from, or "" if it has none. It returns an error for a file that is a link
// out of the folder, no regular file, or over maxInstructions.
func instructions(folder string) (string, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return "", err
	}
	defer root.Close()
	info, err := root.Stat(instructionsFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", errors.New("it is no regular file")
	case info.Size() > maxInstructions:
		return "", fmt.Errorf("it has %d bytes, over the limit of %d", info.Size(), maxInstructions)
	}
	file, err := root.Open(instructionsFile)
	if err != nil {
		return "", err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxInstructions))
	text := strings.TrimSpace(strings.ToValidUTF8(string(data), "\uFFFD"))
	if err != nil || text == "" {
		return "", err
	}
	return "The project has these instructions, in its file " + instructionsFile + ":\n\n" + text, nil
}
