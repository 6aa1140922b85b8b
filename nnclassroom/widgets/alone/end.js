// The end of the function: what a page needs of it.

return { drawn, mind, standIn };
