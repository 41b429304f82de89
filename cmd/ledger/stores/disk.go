package stores

// A Disk describes the file system of a folder. Its fields are null if the operating system
// does not report them.
type Disk struct {
	// Type is its name, such as ext4, or the magic number of an unknown one.
	Type *string `json:"type"`
	// Network reports that the disk belongs to another machine.
	Network bool `json:"network"`
	// Free is the number of bytes that an unprivileged user may write, and Total the
	// size in bytes.
	Free  *int64 `json:"free"`
	Total *int64 `json:"total"`
}
