package domain

// The values of FileAccess.Access.
const (
	FileRead    = "read"
	FileCreated = "create"
	FileChanged = "modify"
	FileDeleted = "delete"
)

// A FileAccess is one file that a successful call read or changed.
type FileAccess struct {
	// Path is the canonical absolute path.
	Path string `json:"path"`
	// Access is one of the values above.
	Access string `json:"access" codec:"intern"`
	// Version identifies the content after the access, such as sha256:HEX. Empty: the
	// content is not known, or the file was deleted.
	Version string `json:"version,omitempty"`
}
