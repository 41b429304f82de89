package stores

// A Disk describes the file system of a folder. Its fields are null if the operating system
// does not report them.
type Disk struct {
	Type    *string `json:"type"`    // its name, such as ext4, or the magic number of an unknown one
	Network bool    `json:"network"` // another machine has the disk
	Free    *int64  `json:"free"`    // bytes that an unprivileged user may write
	Total   *int64  `json:"total"`   // bytes
}
