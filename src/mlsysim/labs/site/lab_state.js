// What a browser remembers of a lab: per student, so that two who share a computer do not see each other's answers.
const EMPTY = { predictions: {}, kept: false, moved: {}, answers: {}, attempts: {}, slips: {}, plans: {}, tries: {}, solved: {}, reflection: "" };
const key = (lab, student) => `mlsysim-lab/${lab}/${student.trim().toLowerCase()}`;

function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // a browser may refuse storage
  }
}

function store(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // it holds until the page is left
  }
}

export function readState(lab, student, version = null) {
  try {
    const found = JSON.parse(stored(key(lab, student)));
    if (found && (version === null || found.version === version)) return { ...structuredClone(EMPTY), ...found };
  } catch {
    // not ours, or of an older form: begin anew
  }
  return { ...structuredClone(EMPTY), version };
}

export const writeState = (lab, student, state) => store(key(lab, student), JSON.stringify(state));
export const studentName = () => stored("mlsysim-student") ?? "";
export const rememberStudent = (name) => store("mlsysim-student", name);
