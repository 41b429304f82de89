package stores

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
)

// indexName is the name of the folder of the index in the folder of a store or node.
const indexName = "index"

// IndexFolders returns the folders in which the index of a store may be, the best one first:
// in the folder of the store if the user of this process owns it and may write to it, for a
// database in the folder of this node; and in the user's cache folder, under a hash of the
// path or address of the store. There is no folder if the environment names no cache folder.
// It does not make the folders.
func (o *Opener) IndexFolders(at Address) ([]string, error) {
	var folders []string
	identity := at.String()
	if at.Database != "" {
		dir, err := o.NodeDir(at)
		if err != nil {
			return nil, err
		}
		folders = append(folders, filepath.Join(dir, indexName))
	} else {
		if info, err := os.Stat(at.Folder); err == nil && owned(info) && writable(at.Folder) {
			folders = append(folders, filepath.Join(at.Folder, indexName))
		}
		path, err := filepath.Abs(at.Folder)
		if err != nil {
			return nil, err
		}
		identity = path
	}
	cache := o.Getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(cache) {
		home := o.Getenv("HOME")
		if home == "" {
			return folders, nil
		}
		cache = filepath.Join(home, ".cache")
	}
	sum := sha256.Sum256([]byte(identity))
	return append(folders, filepath.Join(cache, "ledger", indexName, hex.EncodeToString(sum[:8]))), nil
}
