package stores

// A Disk is the file system that a folder is on.
type Disk struct {
	Type    *string `json:"type"` // null where the system does not say
	Network bool    `json:"network"`
	Free    *int64  `json:"free"`
	Total   *int64  `json:"total"`
}
