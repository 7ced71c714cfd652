package upstream

import "strings"

// unversioned returns the path without what all routes of an API begin with, as far as that is "api" and a version: of
// /api/v10/channels/7/messages it is channels/7/messages. Otherwise the segments that tell routes apart would be
// spent on it, and all channels would be one route.
func unversioned(path string) string {
	for {
		path = strings.TrimLeft(path, "/")
		segment, rest, _ := strings.Cut(path, "/")
		if segment != "api" && !isVersion(segment) || rest == "" {
			return path
		}
		path = rest
	}
}

// isVersion reports whether a segment is that of a version: v1, v10.
func isVersion(segment string) bool {
	digits, found := strings.CutPrefix(segment, "v")
	return found && digits != "" && strings.Trim(digits, "0123456789") == ""
}
