// Addresses of the time when a lab was a page of its own: lab.html?lab=roofline.
location.replace(`index.html#lab/${new URLSearchParams(location.search).get("lab") ?? ""}`);
